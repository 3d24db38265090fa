"""Access to a model's stored configuration and preprocessing, and modified model copies."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import keras
import numpy as np

from keras_vit.layers import ModelMetadata
from keras_vit.models.cloning import clone, clone_layer, is_graph, layers_of, with_loss_scaling
from keras_vit.models.config import ViTConfig
from keras_vit.models.lora import merged_weights
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
    layers = (layer for layer in layers_of(model) if isinstance(layer, ModelMetadata))
    return any(layer.architecture for layer in layers)


def preprocessing_of(model: keras.Model, *, of_network: bool = False) -> Preprocessing:
    """Returns the image preprocessing of a model.

    A model stores the preprocessing of its Vision Transformer. Layers before it that scale pixels,
    such as `Rescaling`, replace the stored scaling: the model's input is then pixels in [0, 255].

    Args:
        model: A model of this package, or a model that contains one.
        of_network: Whether to return the preprocessing of the Vision Transformer alone.

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
    metadata = _metadata_layer(model, -1 if of_network else 0)
    values = _scaled_levels(model, metadata)
    if values is None or of_network:
        return metadata.preprocessing
    # The standard deviation of scaled levels is 0.3 in [0, 1], 0.7 in [-1, 1], 87 in [0, 255].
    if np.all(values.std(axis=0).clip(0.1, 10) == values.std(axis=0)):
        return dataclasses.replace(metadata.preprocessing, mean=(0.0,), std=(1 / 255,))
    raise ValueError(
        "`model` must scale pixels in [0, 255], or not change them, before its Vision Transformer. "
        "For other models state the expected pixels by keras_vit.models.with_preprocessing(model, "
        f"keras_vit.Preprocessing(mean=..., std=..., size=...)). Received: model={model.name!r}"
    )


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
        preprocessing=preprocessing or preprocessing_of(model, of_network=True),
        name=model.name,
        dtype=dtype,
    )
    merged = merged_weights(model)
    if [w.shape for w in copy.weights] != [w.shape for w in merged]:
        raise ValueError(
            "`changes` must keep the shapes of all weights. For another image size or number of "
            "classes pass the saved model to its constructor, as in keras_vit.ViTB16("
            f"weights='own.keras', input_shape=(384, 384, 3)). Received: {changes}"
            if changes
            else "`model` must be a model of keras_vit itself; of a model that contains one pass "
            f"model.get_layer(NAME). Received: model={model.name!r}"
        )
    copy.set_weights(merged)
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
        of_input = ModelMetadata(preprocessing, metadata.architecture, dtype=images.dtype)
        outputs = clone(model)(of_input(images))
        return with_loss_scaling(keras.Model(images, outputs, name=model.name))
    config = preprocessing.get_config()

    def changed(layer: keras.layers.Layer) -> keras.layers.Layer | None:
        return clone_layer(layer, preprocessing=config) if layer is metadata else None

    return clone(model, changed)


def _metadata_layer(model: keras.Model, index: int = 0) -> ModelMetadata:
    layers = [layer for layer in layers_of(model) if isinstance(layer, ModelMetadata)]
    if not layers:
        raise ValueError(
            "`model` must be a model of keras_vit, or contain one, with its preprocessing in a "
            f"ModelMetadata layer. Received: model={model.name!r}"
        )
    return layers[index]


def _scaled_levels(model: keras.Model, metadata: ModelMetadata) -> np.ndarray | None:
    """Computes the values (level, C) that reach a layer for images of one gray level each.

    Returns None if the values are the levels, and NaN if layers with weights are before the layer.
    """
    if not is_graph(model) or not model.built or len(model.inputs) != 1:
        return None
    default = (*metadata.preprocessing.size, metadata.preprocessing.num_channels)
    shape = [side or d for side, d in zip(model.inputs[0].shape[1:], default, strict=False)]
    images = np.moveaxis(np.broadcast_to(_LEVELS, (*shape, len(_LEVELS))), -1, 0)  # no copies
    values = keras.ops.convert_to_numpy(_input_of(model, metadata, images))
    # Not at the borders, which padding changes.
    middle = values[:, values.shape[1] // 2, values.shape[2] // 2].astype("float32")
    return None if np.allclose(middle, _LEVELS[:, None]) else middle


def _input_of(model: Any, target: Any, images: Any) -> Any:
    """Computes the input of a layer, which may be in a nested model."""
    graph = keras.Model(model.inputs[0], model.outputs)  # lists its calls, unlike a Sequential
    for call in itertools.chain(*graph._nodes_by_depth.values()):
        layer = call.operation
        if layer is target or (is_graph(layer) and target in layers_of(layer)):
            if call.input_tensors[0] is not model.inputs[0]:
                before = keras.Model(model.inputs[0], call.input_tensors[0])
                images = images * np.nan if before.trainable_weights else before(images)
            return images if layer is target else _input_of(layer, target, images)
    return images
