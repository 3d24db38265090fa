"""Construction of a classifier for training, from a run's configuration and initial weights."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import keras
import numpy as np

from keras_vit import arguments, models
from keras_vit.escapes import say
from keras_vit.models.keras_applications import application_names, build_application
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import checkpoint_of, has_class_token, in_training, start
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.whole_models import load_model

_HEADS = ("head/", "distillation_head/")


def build_network(
    config: RunConfig,
    class_names: tuple[str, ...],
    *,
    dtype: str = "float32",
    multi_label: bool = False,
) -> keras.Model:
    """Builds the classifier to train, in the given dtype policy and with logits as outputs."""
    thresholds = (0.5,) * len(class_names) if multi_label else None
    if config.model in application_names():
        if config.recipe.lora_rank:
            raise ValueError(
                "`lora_rank` must be 0 for models of keras.applications, which have no transformer "
                f"blocks. Received: {config.model} with lora_rank={config.recipe.lora_rank}"
            )
        trained = _trained_application(config.weights)
        model = build_application(
            config.model,
            class_names,
            weights=trained or config.weights,
            image_size=config.recipe.image_size,
            thresholds=thresholds,
            dtype=dtype,
        )
        preprocessing = models.preprocessing_of(trained) if trained else Preprocessing()
        if trained and (rows := _rows_to_keep(config, preprocessing, class_names)):
            head = trained.get_layer("head").get_weights()
            model.get_layer("head").set_weights([_take(weight, rows) for weight in head])
        return model
    checkpoint = checkpoint_of(config)
    if checkpoint and checkpoint.preprocessing:
        preprocessing = checkpoint.preprocessing
        if rows := _rows_to_keep(config, preprocessing, class_names):
            tensors = {
                name: _take(tensor, rows) if name.startswith(_HEADS) else tensor
                for name, tensor in checkpoint.tensors.items()
            }
            preprocessing = dataclasses.replace(
                preprocessing, class_names=class_names, thresholds=None
            )
            checkpoint = checkpoint.replace(tensors=tensors, preprocessing=preprocessing)
    model = start(
        config,
        checkpoint,
        classes=len(class_names),
        classifier_activation=None,
        pooling=_pooling(config, checkpoint),
    )
    if models.preprocessing_of(model).class_names not in (None, class_names):
        print("Note: the classifier starts from zeros: the weights have other classes.")
        for layer in model.layers:
            if f"{layer.name}/" in _HEADS:
                layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    return in_training(model, config, dtype, class_names=class_names, thresholds=thresholds)


def _pooling(config: RunConfig, checkpoint: Checkpoint | None) -> str | None:
    """Returns the recipe's pooling, or None for that of the weights without a class token."""
    pooling = config.recipe.pooling
    if pooling in ("token", "token_gap") and not has_class_token(config, checkpoint):
        print(f"Note: pooling={pooling!r} needs a class token; the pooling is not changed.")
        return None
    return pooling


def _trained_application(weights: str | None) -> keras.Model | None:
    """Loads the model of a run folder or a `.keras` file; returns None for other weights."""
    if not weights:
        return None
    path = Path(weights) / "last.keras" if Path(weights).is_dir() else Path(weights)
    return load_model(path) if path.suffix == ".keras" else None


def _rows_to_keep(
    config: RunConfig, trained: Preprocessing, new: tuple[str, ...]
) -> list[int] | None:
    """Returns each class's index in the old classifier (-1 if absent), or None to reset all."""
    old = trained.class_names
    if not old or len({*old}) < len(old) or (old != new and all(name.isdigit() for name in old)):
        return None
    is_subset = {*old} <= {*new} or {*new} <= {*old}
    if not is_subset or _loss_of(config.weights, trained) != config.recipe.loss:
        return None
    added = [name for name in new if name not in old]
    if old != new:
        zeros = f"; zero weights for {arguments.shortlist(added)}" if added else ""
        kept = len(new) - len(added)
        say(f"Note: the classifier keeps its weights for {kept} classes, matched by name{zeros}.")
    return [old.index(name) if name in old else -1 for name in new]


def _loss_of(weights: str | None, trained: Preprocessing) -> str | None:
    """Returns the loss that a run or a `.keras` file was trained with; None for other weights."""
    path = Path(weights or "")
    if not path.is_dir() and path.suffix != ".keras":
        return None
    run = RunFolder(path if path.is_dir() else path.parent)
    with contextlib.suppress(ValueError):
        return run.read_config().recipe.loss
    return "sigmoid" if trained.thresholds else "softmax"  # a copy of the file


def _take(weight: np.ndarray, rows: list[int]) -> np.ndarray:
    """Reorders classifier weights (..., K) by the class indices `rows`; -1 selects zeros."""
    return np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, 1)])[..., rows]
