"""From a configuration to what `fit` trains.

Letters: B batch; H, W, C image height, width, channels; D width; K classes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import sklearn.utils

from keras_vit import arguments, data, models, weights, zoo
from keras_vit.layers import TransformerBlock
from keras_vit.models.keras_applications import (
    application_names,
    build_application,
)
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import CommonConfig, RunConfig
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.classification.distillation import DistillationObjective, load_teacher
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training.precision import best_precision
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.whole_models import load_model

_HEADS = ("head/", "distillation_head/")


def check_model(name: str) -> None:
    """Raises `ValueError` unless there is a model of this name to train.

    Args:
        name: A constructor of this package, or a network of `keras.applications`.

    Raises:
        ValueError: If there is neither; the nearest name is suggested.

    Example:
        >>> check_model("ViTB16")
        >>> check_model("ResNet50")
    """
    arguments.one_of("model", name, (*zoo.CONSTRUCTORS, *application_names()))


def build_network(
    config: RunConfig,
    class_names: tuple[str, ...],
    *,
    multi_label: bool = False,
    resume: bool = False,
) -> keras.Model:
    """Builds the model to train: logits, at the precision of training.

    Args:
        config: Its `model`, which may be one of `keras.applications`, `weights` and recipe.
        class_names: The classes of the data. Where the weights have others, their classifier is
            replaced by one of zeros; but where they are those of a run or a `.keras` file that was
            trained with the same loss, and one list of classes contains the other, rows are kept
            by the name of their class.
        multi_label: Whether an image may show several of them or none. The preprocessing then has
            a threshold for each, 0.5 until better ones are known.
        resume: Whether the weights are replaced by those of a state, so that nothing is said of
            them.

    Returns:
        The model.

    Raises:
        ValueError: If weights and configuration do not fit.

    Example:
        >>> from keras_vit.runs.recipe import Recipe
        >>> config = RunConfig("digits", "ViTMicro4", recipe=Recipe(image_size=(8, 8)))
        >>> build_network(config, ("daisy", "rose")).output_shape
        (None, 2)
    """
    if resume:
        with contextlib.redirect_stdout(io.StringIO()):
            return build_network(config, class_names, multi_label=multi_label)
    thresholds = (0.5,) * len(class_names) if multi_label else None
    if config.model in application_names():
        trained = _trained_application(config.weights)
        model = build_application(
            config.model,
            class_names,
            weights=trained or config.weights,
            image_size=config.recipe.image_size,
            thresholds=thresholds,
            dtype=precision_of(config),
        )
        preprocessing = models.preprocessing_of(trained) if trained else Preprocessing()
        if trained and (rows := _rows_to_keep(config, preprocessing, class_names)):
            head = trained.get_layer("head").get_weights()
            model.get_layer("head").set_weights([_take(weight, rows) for weight in head])
        return model
    checkpoint = _checkpoint(config)
    if checkpoint and checkpoint.preprocessing:
        preprocessing = checkpoint.preprocessing
        if rows := _rows_to_keep(config, preprocessing, class_names):
            tensors = {
                name: _take(tensor, rows) if name.startswith(_HEADS) else tensor
                for name, tensor in checkpoint.tensors.items()
            }
            preprocessing = dataclasses.replace(preprocessing, labels=class_names, thresholds=None)
            checkpoint = checkpoint.replace(tensors=tensors, preprocessing=preprocessing)
    model = _start(config, checkpoint, classes=len(class_names), classifier_activation=None)
    preprocessing = models.preprocessing_of(model)
    if preprocessing.labels not in (None, class_names):
        print("Note: the classifier starts from zeros: the weights have it for other classes.")
        for layer in model.layers:
            if f"{layer.name}/" in _HEADS:
                layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    preprocessing = dataclasses.replace(preprocessing, labels=class_names, thresholds=thresholds)
    return _in_training(model, preprocessing, config)


def _trained_application(weights: str | None) -> keras.Model | None:
    """Returns the model of a run or a `.keras` file; None for weights of another kind."""
    if not weights:
        return None
    path = Path(weights) / "last.keras" if os.path.isdir(weights) else Path(weights)
    return load_model(path) if path.suffix == ".keras" else None


def _rows_to_keep(
    config: RunConfig, trained: Preprocessing, new: tuple[str, ...]
) -> list[int] | None:
    """Returns the row of the classifier for each class, -1 for zeros; None where none is kept."""
    old = trained.labels
    if not old or len({*old}) < len(old) or (old != new and all(name.isdigit() for name in old)):
        return None
    contained = {*old} <= {*new} or {*new} <= {*old}
    if not contained or _loss_of(config.weights, trained) != config.recipe.loss:
        return None
    added = [name for name in new if name not in old]
    if old != new:
        zeros = f"; new rows, from zeros: {arguments.shortlist(added)}" if added else ""
        kept = len(new) - len(added)
        print(f"Note: the classifier keeps the rows of {kept} classes, matched by name{zeros}.")
    return [old.index(name) if name in old else -1 for name in new]


def _loss_of(weights: str | None, trained: Preprocessing) -> str | None:
    """Returns the loss that a run or a `.keras` file was trained with; None for other weights."""
    path = Path(weights or "")
    if not path.is_dir() and path.suffix != ".keras":
        return None
    run = Run(path if path.is_dir() else path.parent)
    with contextlib.suppress(ValueError):
        return run.read_config().recipe.loss
    return "sigmoid" if trained.thresholds else "softmax"  # a copy of the file


def _take(weight: np.ndarray, rows: list[int]) -> np.ndarray:
    """Returns the weights of a classifier (..., K) for other classes; those of row -1 are 0."""
    return np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, 1)])[..., rows]


def build_encoder(config: CommonConfig) -> keras.Model:
    """Builds the encoder to pre-train: without a classifier, at the precision of training.

    Args:
        config: Its `model`, `weights` and recipe.

    Returns:
        The encoder, (B, H, W, C) to the class token, or to the mean of the patches' tokens where
        the weights have none: a pooling with weights would not learn.

    Raises:
        ValueError: If weights and configuration do not fit.

    Example:
        >>> from keras_vit.runs.recipe import Recipe
        >>> config = CommonConfig("photos", "ViTMicro4", recipe=Recipe(image_size=(8, 8)))
        >>> build_encoder(config).output_shape
        (None, 96)
    """
    checkpoint = _checkpoint(config)
    has_class_token = checkpoint.inferred.get("class_token", True) if checkpoint else True
    pooling = "token" if has_class_token else "gap"
    model = _start(config, checkpoint, include_top=False, pooling=pooling)
    preprocessing = models.preprocessing_of(model)
    preprocessing = dataclasses.replace(preprocessing, labels=None, thresholds=None)
    return _in_training(model, preprocessing, config)


def set_reading(network: keras.Model, run: Run, *, resume: bool) -> None:
    """Sets how images are read: as by new models, in a resumed run as when it was started."""
    layer = network.get_layer("image_contract")
    reads = Preprocessing()
    if resume:
        reads = Preprocessing.from_config(run.resolved()["preprocessing"])
    elif not layer.preprocessing.exif_orientation:
        print(
            "Note: images are turned upright by their Exif orientation; those that the weights "
            "were trained on were not."
        )
    layer.preprocessing = dataclasses.replace(
        layer.preprocessing,
        exif_orientation=reads.exif_orientation,
        dct_scaling=reads.dct_scaling,
    )


def build_objective(
    config: RunConfig, network: keras.Model, training: data.Examples
) -> ClassificationObjective:
    """Returns the objective of a classifier.

    Args:
        config: Its recipe and teacher.
        network: The network, with logits.
        training: The training images; balanced class weights follow from them.

    Returns:
        The objective.

    Raises:
        ValueError: If the teacher does not fit.
    """
    recipe = config.recipe
    settings: dict[str, Any] = {
        "loss": recipe.loss,
        "multi_label": training.multi_label,
        "label_smoothing": recipe.label_smoothing,
        "class_weights": _class_weights(training) if recipe.class_weights == "balanced" else None,
    }
    if config.teacher is None:
        return ClassificationObjective(network, **settings)
    return DistillationObjective(
        network,
        load_teacher(config.teacher, models.preprocessing_of(network)),
        kind=recipe.distillation,
        weight=recipe.distillation_weight,
        temperature=recipe.distillation_temperature,
        **settings,
    )


def _checkpoint(config: CommonConfig) -> Checkpoint | None:
    return weights.read_checkpoint(config.weights, config.model) if config.weights else None


def _start(config: CommonConfig, checkpoint: Checkpoint | None, **settings: Any) -> keras.Model:
    """Builds the model that a run starts from, and says which weights did not fit as they were."""
    recipe = config.recipe
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        model = zoo.constructor(config.model)(
            weights=checkpoint,
            input_shape=(*recipe.image_size, 3) if recipe.image_size else None,
            dropout_rate=recipe.dropout_rate,
            stochastic_depth_rate=recipe.stochastic_depth_rate,
            **settings,
        )
    for note in notes:
        print(f"Note: {note.message}")
    return model


def _in_training(
    model: keras.Model, preprocessing: Preprocessing, config: CommonConfig
) -> keras.Model:
    """Returns a copy at the precision of training, which keeps its blocks' inside or not."""
    network = models.rebuild(model, dtype=precision_of(config), preprocessing=preprocessing)
    for layer in network.layers:
        if isinstance(layer, TransformerBlock):
            layer.remat = config.recipe.remat
    return network


def _class_weights(training: data.Examples) -> np.ndarray:
    """Returns N / (K n_k) for each class k with n_k of the N images; 0 for one without any.

    Where an image may show several classes, (N - n_k) / n_k, so that a class weighs as much where
    it is shown as where it is not; 1 if one of both never happens.
    """
    counts = training.class_counts()
    if training.multi_label:
        others = len(training) - counts
        return np.where(counts * others, others / np.maximum(counts, 1), 1.0)
    present = np.flatnonzero(counts)
    weights = np.zeros(len(counts))
    weights[present] = sklearn.utils.compute_class_weight(
        "balanced", classes=present, y=training.labels
    )
    return weights


def precision_of(config: CommonConfig) -> str:
    """Returns the Keras dtype policy that a run trains in on this machine.

    Args:
        config: Its recipe and strategy.

    Returns:
        The name of the policy.

    Example:
        >>> from keras_vit.runs.recipe import Recipe
        >>> recipe = Recipe(precision="mixed_bfloat16")
        >>> precision_of(CommonConfig("photos", "ViTMicro4", recipe=recipe))
        'mixed_bfloat16'
    """
    precision = config.recipe.precision
    return best_precision(config.strategy) if precision == "auto" else precision
