"""Reading what a finished model carries, and building it again with changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from keras_vit.layers import ImageContract
from keras_vit.models.config import ViTConfig
from keras_vit.models.vit import build
from keras_vit.preprocessing import Preprocessing


def config_of(model: keras.Model) -> ViTConfig:
    """Returns the configuration that a model of this package was built from.

    Args:
        model: A model of this package, or a model that contains one.

    Returns:
        The configuration.

    Raises:
        ValueError: If the model carries none.

    Example:
        >>> from keras_vit.models.config import size
        >>> config_of(build(size("Micro/4").replace(image_size=(8, 8)))).num_layers
        4
    """
    contract = _contract(model)
    if not contract.architecture:
        raise ValueError(
            "`model` must tell how it was built, which the layer ImageContract does where this "
            f"package has made it. Received: model={model.name!r}, which does not tell"
        )
    return ViTConfig(**contract.architecture)


def preprocessing_of(model: keras.Model) -> Preprocessing:
    """Returns how image files become the input of a model.

    Args:
        model: A model of this package, or a model that contains one.

    Returns:
        The preprocessing, with the labels of the classes if there are any.

    Raises:
        ValueError: If the model carries none.

    Example:
        >>> from keras_vit.models.config import size
        >>> preprocessing_of(build(size("Micro/4").replace(image_size=(8, 8)))).size
        (8, 8)
    """
    return _contract(model).preprocessing


def rebuild(
    model: keras.Model,
    *,
    dtype: Any = "float32",
    preprocessing: Preprocessing | None = None,
    **changes: Any,
) -> keras.Model:
    """Builds a model again with the same weights.

    Mixed precision, dropout and a missing softmax are properties of training; what is saved,
    evaluated and exported is this copy in float32.

    Args:
        model: A model of this package.
        dtype: Keras dtype or policy of the copy.
        preprocessing: Replaces the preprocessing that the model carries.
        **changes: Fields of `ViTConfig` to change; the weights must still fit.

    Returns:
        A new model.

    Raises:
        ValueError: If the model was not built by this package, or its weights do not fit.

    Example:
        >>> from keras_vit.models.config import size
        >>> model = build(size("Micro/4").replace(image_size=(8, 8)), dtype="mixed_bfloat16")
        >>> rebuild(model, classifier_activation=None).compute_dtype
        'float32'
    """
    copy = build(
        config_of(model).replace(**changes),
        preprocessing=preprocessing or preprocessing_of(model),
        name=model.name,
        dtype=dtype,
    )
    copy.set_weights(model.get_weights())
    return copy


def _contract(model: keras.Model) -> ImageContract:
    found = next((layer for layer in _layers(model) if isinstance(layer, ImageContract)), None)
    if found is None:
        raise ValueError(
            "`model` must be a model of keras_vit, or contain one: it carries its preprocessing "
            f"and labels in a layer ImageContract. Received: model={model.name!r} without one"
        )
    return found


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
