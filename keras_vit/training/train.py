"""Recipe to `model.fit`: from a folder of images to a run folder."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit import arguments, data, files, models, output_folder, zoo
from keras_vit.evaluation import MultiLabelReport, Report
from keras_vit.evaluation.evaluate import evaluate
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import Run
from keras_vit.training import param_groups
from keras_vit.training.build import (
    build_network,
    build_objective,
    check_model,
    precision_of,
    set_reading,
)
from keras_vit.training.distribution import Devices, devices
from keras_vit.training.loop import build_training_model, fit_remaining, save_as_configured
from keras_vit.training.multi_label import fit_to_labels, set_thresholds
from keras_vit.training.parts import find_parts
from keras_vit.training.pictures import draw_mistakes, log_pictures
from keras_vit.training.precision import report_unused_accelerator
from keras_vit.training.progress import EpochClock, TensorBoard
from keras_vit.training.signals import Interruption
from keras_vit.visualization import multi_label, plots
from keras_vit.weights import list_weights

# How many validation images a run keeps, to try predictions and verify exports with.
_SAMPLES = 16
_FEW_UPDATES = 100  # a small folder; three epochs of 3000 photographs are 550
_LONGEST_LABEL = 80  # characters of a file name, for all that an image shows
_LONGEST_NAME, _LONGEST_SUFFIX = 200, 20  # bytes; file systems allow 255


def train(
    config: RunConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    tensorboard: bool = True,
    profile: tuple[int, int] | None = None,
    smaller_batches: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Report | MultiLabelReport | None:
    """Trains a model and writes a run folder.

    The folder holds the configuration, the split, the history and how long it took, `last.keras`
    and `best.keras` after every epoch, the states to resume from, and at the end the evaluation of
    the last epoch's weights on the validation part, as a table and a picture.

    Where images may show several classes or none, the loss is sigmoid, and both models get the
    thresholds that fit best to the validation part.

    Args:
        config: Data, model, recipe and devices. With `resume` the run's own configuration counts.
        out: The run folder.
        resume: Whether to go on where `out` was saved last.
        tensorboard: Whether TensorBoard logs are written.
        profile: First and last step to profile for TensorBoard, counted from 1.
        smaller_batches: Whether a batch size above the number of training images is reduced.
        callbacks: Called as `fit` calls them, after the state of the run was saved, and on the
            chief alone. A run that is resumed within an epoch calls `fit` twice, and there the
            steps of the first epoch are counted from where it was interrupted.

    Returns:
        The evaluation of `last.keras` on the validation examples; None on workers other than the
        chief.

    Raises:
        ValueError: If the data, the configuration or the folder does not allow the run; before
            any work starts.
        FloatingPointError: If the loss becomes no number; the last good state stays.
        KeyboardInterrupt: After saving, if the user stops the run.
        SystemExit: After saving, on SIGTERM.

    Example:
        >>> from keras_vit.runs.recipe import Recipe
        >>> recipe = Recipe(epochs=1, batch_size=512, image_size=(16, 16))
        >>> config = RunConfig("digits", "ViTMicro4", recipe=recipe)
        >>> train(config, "runs/digits", tensorboard=False).num_examples  # doctest: +ELLIPSIS
        Checking the images of digits ...
        ...
        359
    """
    run = Run(out)
    if resume:
        config = run.read_config()
        # What "auto" came to when the run was started, wherever it goes on.
        recipe = config.recipe.replace(precision=run.resolved()["precision"])
        config = dataclasses.replace(config, recipe=recipe)
    else:
        output_folder.require_new_run(run.path)
    check_model(config.model)
    recipe = config.recipe
    keras.utils.set_random_seed(recipe.seed)
    where = devices(config.strategy, config.model_parallel)
    report_unused_accelerator(config.strategy)
    where.check(recipe)
    with run.writing("train", resume=resume, writes=where.is_chief):
        logs = [TensorBoard(str(run.tensorboard), profile)] if tensorboard else []
        watching = [EpochClock(run.times), *logs, *callbacks] if where.is_chief else []
        examples = data.load(config.data)
        config = fit_to_labels(config, examples)
        recipe = config.recipe
        with where.active():
            # Before the images are audited, which takes a while: a wrong size or weight file shows
            # here.
            with where.scope():
                network = build_network(
                    config, examples.class_names, multi_label=examples.multi_label, resume=resume
                )
                param_groups.set_trainable(network, recipe.trainable)
            set_reading(network, run, resume=resume)
            if resume:
                _check_classes(config, run, examples)
            training, validation, inventory = find_parts(
                config, examples, run, resume=resume, writes=where.is_chief
            )
            if smaller_batches and not resume:
                config = _with_full_batch(config, len(training), where)
                recipe = config.recipe
            steps = data.steps_per_epoch(training, recipe.batch_size)
            with where.scope():
                objective = build_objective(config, network, training)
                training_model = build_training_model(objective, network, config, steps)
            preprocessing = models.preprocessing_of(network)
            with Interruption() as interruption:
                save = save_as_configured(
                    config,
                    run,
                    training_model,
                    where,
                    steps=steps,
                    interruption=interruption,
                    command="train",
                )
                if resume:
                    save.restore()
                elif where.is_chief:
                    resolved = {
                        "precision": precision_of(config),
                        "devices": where.name,
                        "flip": recipe.augmentation.flip and examples.flip_safe,
                        "training_examples": len(training),
                        "validation_examples": len(validation),
                        "inventory": dataclasses.asdict(inventory),
                        "classes": len(examples.class_names),
                        "preprocessing": preprocessing.get_config(),
                    }
                    with files.atomic_path(run.labels) as temporary:
                        temporary.write_text(_lines(examples.class_names), encoding="utf-8")
                    _write_samples(run, validation)
                    run.write_config(config, resolved)  # last: what makes the folder a run
                if save.progress.epoch < recipe.epochs:
                    start = config.weights or "random weights"
                    print(
                        f"Training {config.model} from {start} on {len(training)} images of "
                        f"{len(examples.class_names)} classes, {len(validation)} held out, in "
                        f"{precision_of(config)} on {where.name}; epochs: {recipe.epochs}, full "
                        f"batches in each: {steps}."
                    )
                    _advise(config, steps)
                parts = (training, validation)
                fit_remaining(
                    training_model,
                    save,
                    recipe,
                    where,
                    parts,
                    preprocessing,
                    watching,
                    config.on_bad_image,
                )
        return _finish(run, validation) if where.is_chief else None


def _with_full_batch(config: RunConfig, images: int, where: Devices) -> RunConfig:
    """Returns the configuration with a batch size of at most the number of images."""
    recipe = config.recipe
    parts = where.replicas * recipe.accumulation_steps * (2 if recipe.augmentation.mixes else 1)
    if images >= recipe.batch_size or images < parts:
        return config
    size = images // parts * parts
    print(f"Batch size {size} in place of {recipe.batch_size}: there are {images} images.")
    return dataclasses.replace(config, recipe=recipe.replace(batch_size=size))


def _advise(config: RunConfig, steps: int) -> None:
    """Says what hardly can be meant."""
    ours = config.model in zoo.CONSTRUCTORS
    recipe = config.recipe
    ignored = {
        "layer-wise decay": recipe.layer_decay < 1,
        "dropout": recipe.dropout_rate > 0,
        "stochastic depth": recipe.stochastic_depth_rate > 0,
        "rematerialisation": recipe.remat,
    }
    if not ours and any(ignored.values()):
        print(
            f"Note: {config.model} has no blocks of a Vision Transformer, so it is trained without "
            f"{' and '.join(name for name, asked in ignored.items() if asked)}."
        )
    if config.weights is None and (not ours or list_weights(config.model)):
        print(
            f"Note: {config.model} learns little from few photographs without pretrained weights, "
            "which --weights imagenet brings."
        )
    updates = steps * config.recipe.epochs
    if updates < _FEW_UPDATES:
        print(
            f"Note: {updates} updates in all are few; with --epochs "
            f"{math.ceil(_FEW_UPDATES / steps)} there are {_FEW_UPDATES} or more."
        )


def _check_classes(config: RunConfig, run: Run, examples: data.Examples) -> None:
    if run.labels.read_text(encoding="utf-8") != _lines(examples.class_names):
        raise ValueError(
            f"The classes of {config.data} must be those of {run.labels}. Restore them, or start a "
            f"new run. Received: the classes {', '.join(examples.class_names[:20])}"
        )


def _lines(class_names: tuple[str, ...]) -> str:
    return "\n".join(class_names) + "\n"


def _write_samples(run: Run, validation: data.Examples) -> None:
    """Keeps a few validation images as they are, evenly spread over the classes' order."""
    run.samples.mkdir(parents=True, exist_ok=True)
    labels = validation.labels
    order = np.argsort(labels.argmax(axis=1) if validation.multi_label else labels, kind="stable")
    spread = np.linspace(0, len(order) - 1, min(_SAMPLES, len(order))).round().astype(int)
    for index in order[np.unique(spread)]:
        label, name = "_".join(validation.shown(index)) or "none", validation.names[index]
        label = label if not validation.multi_label else label[:_LONGEST_LABEL]
        name = name if name.startswith(f"{label}/") else f"{label}_{name}"
        # Neither a slash nor a name of dots alone: nothing leads out of the folder.
        stem, suffix = os.path.splitext(re.sub(r"[^\w.-]", "_", name))
        end = suffix.encode()[:_LONGEST_SUFFIX]
        name = (stem.encode()[: _LONGEST_NAME - len(end)] + end).decode(errors="ignore")
        (run.samples / name).write_bytes(validation.read(int(index)))


def _finish(run: Run, validation: data.Examples) -> Report | MultiLabelReport:
    """Evaluates the last epoch's weights as they were saved, and says where everything is."""
    if validation.multi_label:
        for path in (run.last, run.best):
            if path.exists():
                set_thresholds(path, validation)
    model = run.model(compile=True)
    report = evaluate(model, validation, verbose=0)
    inventory = run.resolved().get("inventory")  # absent from runs of earlier versions
    files.write_json(run.evaluation, {**report.to_json(), "inventory": inventory})
    if isinstance(report, MultiLabelReport):
        picture = multi_label.label_scores(report, run.label_scores)
    else:
        picture = plots.confusion_matrix(report, run.confusion_matrix)
    pictures = {"confusion": picture, "curves": run.curves}
    if not validation.multi_label and draw_mistakes(model, validation, run.mistakes):
        pictures["mistakes"] = run.mistakes
    plots.training_curves(run.history, run.curves)  # last: what makes the run complete
    if run.tensorboard.is_dir():
        log_pictures(run.tensorboard / "evaluation", pictures)
    print(f"\nThe last epoch's weights on the {len(validation)} images held out:\n")
    print(report.text())
    if validation.multi_label:
        print(
            "The thresholds were chosen on these images: all but average precision is optimistic."
        )
    print(
        f"\n{run.path} holds last.keras, best.keras, evaluation.json, {picture.name} and "
        f"curves.png. Next:\n  {arguments.command('predict', run.path, run.samples)}/*\n"
        f"  {arguments.command('export', run.path, '--to', run.path / 'serving')}"
    )
    return report
