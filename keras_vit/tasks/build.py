"""Construction of the network to train, from a run's configuration and initial weights."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import keras

from keras_vit import models, weights, zoo
from keras_vit.layers import TransformerBlock
from keras_vit.models.keras_applications import application_names
from keras_vit.models.lora import enable_lora
from keras_vit.models.memory import require_memory
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import CommonConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.weights.checkpoint import Checkpoint


def check_model(name: str) -> None:
    """Raises `ValueError` if no model of this name can be trained."""
    zoo.require_name(name, application_names())


def default_weights(model: str) -> str | None:
    """Returns the name of the published weights to start from, or None if there are none."""
    if model in application_names():
        return "imagenet"
    rows = weights.list_weights(model)
    has_imagenet = any("imagenet" in row.aliases for row in rows)
    return "imagenet" if has_imagenet else rows[0].name if rows else None


def build_encoder(
    config: CommonConfig,
    dtype: str = "float32",
    class_names: tuple[str, ...] | None = None,
    pooling: str | None = None,
) -> keras.Model:
    """Builds an encoder without a classifier, in the given dtype policy."""
    checkpoint = checkpoint_of(config)
    pooling = pooling or ("token" if has_class_token(config, checkpoint) else "gap")
    model = start(config, checkpoint, include_top=False, pooling=pooling)
    return in_training(model, config, dtype, class_names=class_names, thresholds=None)


def complete_preprocessing(
    network: keras.Model, run: RunFolder, task: str | None, resize: str | None, *, resume: bool
) -> None:
    """Stores the task name and the options for reading images in the network's preprocessing.

    New runs use the default decoding options; resumed runs use their original options.
    """
    layer = network.get_layer("image_contract")
    decoding = Preprocessing()
    if resume:
        decoding = Preprocessing.from_config(run.resolved()["preprocessing"])
    elif not layer.preprocessing.exif_orientation:
        print(
            "Note: images are rotated according to their EXIF orientation; the images that the "
            "weights were trained on were not."
        )
    layer.preprocessing = dataclasses.replace(
        layer.preprocessing,
        exif_orientation=decoding.exif_orientation,
        dct_scaling=decoding.dct_scaling,
        resize=resize or layer.preprocessing.resize,
        task=task,
    )


def checkpoint_of(config: CommonConfig) -> Checkpoint | None:
    """Reads the initial weights of a run as a checkpoint; returns None if there are none."""
    return weights.read_checkpoint(config.weights, config.model) if config.weights else None


def has_class_token(config: CommonConfig, checkpoint: Checkpoint | None) -> bool:
    """Returns whether the initial model of a run has a class token."""
    published = zoo.constructor(config.model).config.class_token
    return checkpoint.inferred.get("class_token", published) if checkpoint else published


def start(config: CommonConfig, checkpoint: Checkpoint | None, **settings: Any) -> keras.Model:
    """Builds the initial model of a run; prints warnings about the loaded weights as notes."""
    recipe = config.recipe
    if recipe.image_size:
        require_memory(zoo.constructor(config.model).config.replace(image_size=recipe.image_size))
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as notes:
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


def in_training(model: keras.Model, config: CommonConfig, dtype: str, **fields: Any) -> keras.Model:
    """Copies a model for training, with the given dtype and the recipe's rematerialization.

    The `fields` replace those of the model's preprocessing.
    """
    preprocessing = dataclasses.replace(models.preprocessing_of(model), **fields)
    network = models.rebuild(model, dtype=dtype, preprocessing=preprocessing)
    for layer in network.layers:
        if isinstance(layer, TransformerBlock):
            layer.remat = config.recipe.remat
    if config.recipe.lora_rank:
        enable_lora(network, config.recipe.lora_rank, config.recipe.lora_layers)
    return network


def without_dropout(network: keras.Model, **changes: Any) -> keras.Model:
    """Returns a float32 copy of a network for inference, with further fields changed."""
    for name in ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"):
        changes[name] = 0.0
    return models.rebuild(network, **changes)
