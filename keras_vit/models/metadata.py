"""Access to a model's stored configuration and preprocessing, and modified model copies."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import keras
import numpy as np

from keras_vit.layers import ModelMetadata
from keras_vit.models.cloning import clone, clone_layer, is_graph, layers_of
from keras_vit.models.config import ViTConfig
from keras_vit.models.vit import build
from keras_vit.preprocessing import Preprocessing

_LEVELS = np.arange(0, 256, 51)  # exact in bfloat16


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
    metadata = _metadata_layer(model, of_network=True)
    if not metadata.architecture:
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
    """Returns the image preprocessing of a model.

    A model stores the preprocessing of its Vision Transformer. Layers before it that scale pixels,
    such as `Rescaling`, replace the stored scaling: the model's input is then pixels in [0, 255].

    Args:
        model: A model of this package, or a model that contains one.

    Returns:
        The preprocessing of the model's input, with the class names if there are any.

    Raises:
        ValueError: If the model contains no preprocessing, or it is unknown which pixels the layers
            before the Vision Transformer expect: state it by `with_preprocessing`.

    Examples:
        >>> from keras_vit.models.config import size
        >>> preprocessing_of(build(size("Micro/4").replace(image_size=(8, 8)))).size
        (8, 8)
    """
    metadata = _metadata_layer(model)
    values = _scaled_levels(model, metadata)
    if values is None:
        return metadata.preprocessing
    spread = values.std(axis=0)
    # In [0, 1] it is 0.3, in [-1, 1] 0.7, in [0, 255] 87.
    if spread.min() > 0.1 and spread.max() < 10:
        return dataclasses.replace(metadata.preprocessing, mean=(0.0,), std=(1 / 255,))
    raise ValueError(
        "`model` must apply its Vision Transformer to its input, or scale pixels in [0, 255] "
        "before it. For other layers before it, state the pixels that the model expects: "
        "keras_vit.models.with_preprocessing(model, keras_vit.Preprocessing(size=..., mean=..., "
        f"std=...)), and use this copy. Received: model={model.name!r}, which changes the pixels "
        "before its Vision Transformer"
    )


def stored_preprocessing(model: keras.Model) -> Preprocessing:
    """Returns the preprocessing of the Vision Transformer in a model, without layers before it."""
    return _metadata_layer(model, of_network=True).preprocessing


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
        preprocessing=preprocessing or stored_preprocessing(model),
        name=model.name,
        dtype=dtype,
    )
    copy.set_weights(model.get_weights())
    return copy


def with_preprocessing(model: keras.Model, preprocessing: Preprocessing) -> keras.Model:
    """Copies a model and replaces its preprocessing.

    Args:
        model: A functional or sequential model that contains a preprocessing.
        preprocessing: Preprocessing of the copy's input, before any layers that scale pixels.

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
    if _scaled_levels(model, metadata) is not None:
        images = keras.Input(batch_shape=model.inputs[0].shape, dtype=model.inputs[0].dtype)
        of_input = ModelMetadata(preprocessing, dtype=images.dtype, name="image_contract")
        return keras.Model(images, clone(model)(of_input(images)), name=model.name)
    config = preprocessing.get_config()

    def changed(layer: keras.layers.Layer) -> keras.layers.Layer | None:
        return clone_layer(layer, preprocessing=config) if layer is metadata else None

    return clone(model, changed)


def _metadata_layer(model: keras.Model, *, of_network: bool = False) -> ModelMetadata:
    found = [layer for layer in layers_of(model) if isinstance(layer, ModelMetadata)]
    if not found:
        raise ValueError(
            "`model` must be a model of keras_vit, or contain one, with its preprocessing in a "
            f"ModelMetadata layer. Received: model={model.name!r}"
        )
    return next((layer for layer in found if of_network and layer.architecture), found[0])


def _scaled_levels(model: keras.Model, metadata: ModelMetadata) -> np.ndarray | None:
    """Computes the values (level, C) that reach a layer for images of one gray level each.

    Returns None if the values are the levels, and NaN if layers with weights are before the layer.
    """
    if not is_graph(model) or not model.built or len(model.inputs) != 1:
        return None
    needed = (*metadata.preprocessing.size, metadata.preprocessing.num_channels)
    shape = [n or m for n, m in zip(model.inputs[0].shape[1:], needed, strict=False)]
    images = (_LEVELS * np.ones((*shape, 1))).astype(model.inputs[0].dtype)
    values = _reaching(model, metadata, np.moveaxis(images, -1, 0))
    values = keras.ops.convert_to_numpy(values).astype("float32")
    middle = values[:, values.shape[1] // 2, values.shape[2] // 2]  # padding changes borders
    return None if np.allclose(middle, _LEVELS[:, None]) else middle


def _reaching(model: Any, target: Any, images: Any) -> Any:
    """Computes the input of a layer, which may be in a nested model."""
    graph = keras.Model(model.inputs[0], model.outputs)  # lists its calls, unlike a Sequential
    for call in itertools.chain(*graph._nodes_by_depth.values()):
        layer = call.operation
        if layer is target or (is_graph(layer) and target in layers_of(layer)):
            if call.input_tensors[0] is not model.inputs[0]:
                front = keras.Model(model.inputs[0], call.input_tensors[0])
                images = images * np.nan if front.trainable_weights else front(images)
            return images if layer is target else _reaching(layer, target, images)
    return images
