"""Examination of a model with all available checks."""

from __future__ import annotations

import os
from collections.abc import Callable

import keras

from keras_vit import arguments, data
from keras_vit.doctor.activations import check_activations
from keras_vit.doctor.class_balance import check_classes
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import SEVERITIES, Finding
from keras_vit.doctor.frozen import check_frozen
from keras_vit.doctor.initial_loss import check_start
from keras_vit.doctor.label_order import check_labels, check_names
from keras_vit.doctor.learning_rate import check_learning_rate
from keras_vit.doctor.loading import load_model_and_run, preprocessing_for
from keras_vit.doctor.onednn import check_onednn
from keras_vit.doctor.outputs import check_outputs
from keras_vit.doctor.pixel_scaling import assume_best, check_pixels
from keras_vit.doctor.scaling_candidates import scaled
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.registry import check_command

# Title of each check, its function, and whether the function requires finite outputs.
CHECKS: tuple[tuple[str, Callable[[DoctorContext], list[Finding]], bool], ...] = (
    ("weights and activations", check_activations, False),
    ("pixel scaling", check_pixels, True),
    ("outputs and loss", check_outputs, True),
    ("frozen parameters", check_frozen, False),
    ("label order", check_labels, True),
    ("classes of the data", check_classes, False),
    ("class names", check_names, False),
    ("initial loss", check_start, True),
    ("learning rate", check_learning_rate, True),
    ("use of oneDNN", check_onednn, False),
)


def examine(
    model: keras.Model | str | os.PathLike[str],
    examples: data.Examples | str | os.PathLike[str] | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    pixels: str | None = None,
    learning_rate: float | None = None,
    sample: int = 256,
    batch_size: int = 16,
    range_steps: int = 60,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Finding]:
    """Checks a model, its data and its training for common mistakes.

    No files are written, and the model is unchanged afterwards.

    Args:
        model: Any image classifier that Keras can call, the path of a model file that Keras can
            load, or a run folder.
        examples: Labeled images, or their data source; by default the held-out images of a run.
        preprocessing: Preprocessing of the model's input; by default that stored in the model, or
            else the common pixel scaling with the best predictions.
        pixels: Pixel scaling that a model of another library was trained with, if not given by
            `preprocessing`: `"0..255"`, `"0..1"`, `"-1..1"`, `"imagenet"` or `"caffe"`.
        learning_rate: Learning rate of the training; by default that of the run, or of the
            optimizer that the model is compiled with.
        sample: Maximum number of images to predict; 4 or more of each class are best.
        batch_size: Batch size.
        range_steps: Steps of the learning-rate range test; 0 skips the test.
        seed: Seed of the selection of images.
        progress: Function that is called with a line before each check.

    Returns:
        At least one finding of every check, serious findings first.

    Raises:
        ValueError: If the model is not an image classifier, or the images cannot be used.

    Examples:
        >>> from keras_vit import data, models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), num_layers=1, classes=10)
        >>> model = models.build(config)
        >>> findings = examine(model, data.load("digits").subset(range(70)), range_steps=0)
        >>> [finding.name for finding in findings if finding.severity != "fine"]
        ['classes without names', 'learning rate']
    """
    run = pool = None
    if learning_rate is not None:
        arguments.positive("learning_rate", learning_rate)
    if not isinstance(model, keras.Model):
        model, run = load_model_and_run(model)
    task = check_command("doctor", preprocessing or preprocessing_for(model)[0])
    if isinstance(examples, (str, os.PathLike)):
        examples = task.load(examples)
    if examples is None:
        if run is None:
            raise ValueError("`examples` must be given unless a run is examined. Received: none")
        examples, pool = run.all_examples, run.indices("validation")
    if pixels is not None:
        preprocessing = scaled(preprocessing or preprocessing_for(model)[0], pixels)
    context = DoctorContext(
        model,
        examples,
        pool=pool,
        preprocessing=preprocessing,
        run=run,
        learning_rate=learning_rate,
        sample=sample,
        batch_size=batch_size,
        range_steps=range_steps,
        seed=seed,
        progress=progress is not None,
    )
    assume_best(context)
    findings: list[Finding] = []
    for number, (title, check, needs_finite_outputs) in enumerate(CHECKS, start=1):
        if progress is not None:
            progress(f"{number}/{len(CHECKS)} {title}")
        if needs_finite_outputs and not context.finite:
            findings.append(Finding(title, "note", "Not checked: the outputs are NaN or infinite."))
        else:
            findings += check(context)
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
