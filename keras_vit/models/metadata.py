"""Access to a model's stored configuration and preprocessing, and modified model copies."""

from __future__ import annotations

from typing import Any

import keras

from keras_vit.layers import ModelMetadata
from keras_vit.models.cloning import clone, clone_layer, layers_of
from keras_vit.models.config import ViTConfig
from keras_vit.models.vit import build
from keras_vit.preprocessing import Preprocessing


def config_of(model: keras.Model) -> ViTConfig:
    """Returns the configuration from which a model of this package was built.

    Args:
        model: A model of this package, or a model that contains one.

    Returns:
        The configuration.

    Raises:
        ValueError: If the model contains no configuration.

    Examples:
        >>> from keras_vit.models.config import size
        >>> config_of(build(size("Micro/4").replace(image_size=(8, 8)))).num_layers
        4
    """
    metadata = _metadata_layer(model)
    if not has_config(model):
        raise ValueError(
            "`model` must contain its configuration in a ModelMetadata layer, as models of "
            f"keras_vit do. Received: model={model.name!r}, which has no such layer"
        )
    return ViTConfig(**metadata.architecture)


def has_config(model: keras.Model) -> bool:
    """Returns whether a model contains a Vision Transformer configuration (see `config_of`).

    Args:
        model: Any model.

    Returns:
        Whether the model is a Vision Transformer of this package, or contains one.

    Examples:
        >>> has_config(keras.Sequential([keras.layers.Dense(3)]))
        False
    """
    found = (layer for layer in layers_of(model) if isinstance(layer, ModelMetadata))
    return any(metadata.architecture for metadata in found)


def preprocessing_of(model: keras.Model) -> Preprocessing:
    """Returns the image preprocessing that is stored in a model.

    Args:
        model: A model of this package, or a model that contains one.

    Returns:
        The preprocessing, with the class names if there are any.

    Raises:
        ValueError: If the model contains no preprocessing.

    Examples:
        >>> from keras_vit.models.config import size
        >>> preprocessing_of(build(size("Micro/4").replace(image_size=(8, 8)))).size
        (8, 8)
    """
    return _metadata_layer(model).preprocessing


def rebuild(
    model: keras.Model,
    *,
    dtype: Any = "float32",
    preprocessing: Preprocessing | None = None,
    **changes: Any,
) -> keras.Model:
    """Builds a copy of a model with the same weights but, for example, a different dtype.

    Mixed precision, dropout and logits as outputs are only for training; such a float32 copy is
    saved, evaluated and exported.

    Args:
        model: A model of this package.
        dtype: Keras dtype or policy of the copy.
        preprocessing: Replaces the preprocessing of the model.
        **changes: Fields of `ViTConfig` to change; the weight shapes must not change.

    Returns:
        A new model.

    Raises:
        ValueError: If the model was not built by this package, or a weight shape changes.

    Examples:
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


def with_preprocessing(model: keras.Model, preprocessing: Preprocessing) -> keras.Model:
    """Copies a model and replaces its preprocessing.

    Args:
        model: A functional or sequential model that contains a preprocessing.
        preprocessing: Preprocessing of the copy.

    Returns:
        The copy, with separate weights.

    Raises:
        ValueError: If the model contains no preprocessing.

    Examples:
        >>> from keras_vit.models.config import size
        >>> model = build(size("Micro/4").replace(image_size=(8, 8), classes=2))
        >>> preprocessing = Preprocessing(size=8, class_names=("daisy", "rose"))
        >>> preprocessing_of(with_preprocessing(model, preprocessing)).class_names
        ('daisy', 'rose')
    """
    metadata = _metadata_layer(model)
    config = preprocessing.get_config()

    def changed(layer: keras.layers.Layer) -> keras.layers.Layer | None:
        return clone_layer(layer, preprocessing=config) if layer is metadata else None

    return clone(model, changed)


def _metadata_layer(model: keras.Model) -> ModelMetadata:
    found = next((layer for layer in layers_of(model) if isinstance(layer, ModelMetadata)), None)
    if found is None:
        raise ValueError(
            "`model` must be a model of keras_vit, or contain one, with its preprocessing in a "
            f"ModelMetadata layer. Received: model={model.name!r}"
        )
    return found
