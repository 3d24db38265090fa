"""Use of Keras and KerasCV augmentation layers in the training pipeline.

Letters: B batch; h, w, C image height, width, channels; K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

# Names of the method by which layers of Keras and KerasCV change labels.
_LABEL_METHODS = ("transform_labels", "augment_label", "augment_labels")


def read_layers(layers: Sequence[Any]) -> tuple[keras.layers.Layer, ...]:
    """Returns augmentation layers, building those that are given as configurations."""
    read = []
    for layer in layers:
        try:
            is_config = isinstance(layer, dict)
            built = keras.saving.deserialize_keras_object(layer) if is_config else layer
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(
                "`layers` must contain layers, or configurations returned by "
                "`keras.saving.serialize_keras_object`. For KerasCV layers, install the extra "
                f"`kerascv` and `import keras_cv` first. Received: {layer}"
            ) from error
        # Layers of KerasCV may be built on another Keras and are then not a `keras.layers.Layer`.
        if not callable(built) or not hasattr(built, "get_config"):
            raise ValueError(
                "`layers` must contain layers of Keras or KerasCV, or their configurations. "
                f"Received: {layer!r}"
            )
        precision = getattr(built, "compute_dtype", "float32")
        if precision != "float32":
            # Pixels would be rounded, and Keras' MixUp fails inside tf.data.
            raise ValueError(
                "`layers` must compute in float32: pass dtype='float32' to each layer. "
                f"Received: {built.name}, which computes in {precision}"
            )
        read.append(built)
    return tuple(read)


def write_layers(layers: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the configurations of augmentation layers, to be saved in a file.

    Args:
        layers: Layers or configurations.

    Returns:
        Dictionaries that `read_layers` reads.

    Examples:
        >>> write_layers([keras.layers.RandomContrast(0.2)])[0]["class_name"]
        'RandomContrast'
    """
    return [
        layer if isinstance(layer, dict) else keras.saving.serialize_keras_object(layer)
        for layer in layers
    ]


def apply_layers(
    images: tf.Tensor, labels: tf.Tensor, layers: Sequence[keras.layers.Layer]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Applies augmentation layers in training mode to a batch of images and labels."""
    shape = images.shape
    images = tf.cast(images, tf.float32)
    for layer in layers:
        if any(hasattr(layer, method) for method in _LABEL_METHODS):
            changed = layer({"images": images, "labels": labels}, training=True)
            images, labels = changed["images"], changed["labels"]
        else:
            images = layer(images, training=True)
        if not shape.is_compatible_with(images.shape):
            raise ValueError(
                "Every layer in `layers` must keep the shape of the images. Received: "
                f"{layer.name}, which changes the shape from {shape} to {images.shape}"
            )
        images = tf.cast(tf.ensure_shape(images, shape), tf.float32)
    return images, tf.cast(labels, tf.float32)
