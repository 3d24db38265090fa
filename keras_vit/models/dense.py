"""Dense models: a Vision Transformer with an output for each pixel.

Letters: B batch; H, W image height and width; h, w rows and columns of patches; D hidden size; E
width of the adapter; K classes.
"""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_vit import arguments, layers
from keras_vit.models.cloning import require_graph, with_loss_scaling
from keras_vit.models.metadata import config_of

WIDTH = 96  # of the adapter
_DETAIL = 32  # channels of the image at half its size, twice as many at a quarter


def fixed_size(backbone: keras.Model) -> tuple[int, int]:
    """Returns the image size (H, W) of a backbone; raises `ValueError` if it has any size."""
    require_graph(backbone, "backbone")
    size = backbone.input.shape[1:3]
    if None in size:
        raise ValueError(
            "`backbone` must have a fixed image size, as with input_shape=(224, 224, 3). "
            f"Received: {backbone.name} with input {backbone.input.shape}"
        )
    return size


def patch_tokens(backbone: keras.Model, block: int, dtype: Any) -> Any:
    """Returns the normalized patch tokens (B, h, w, D) after a block, counted from 0."""
    name, epsilon = f"block_{block:02d}", config_of(backbone).epsilon
    norm = layers.LayerNorm(epsilon, dtype=dtype, name=f"{name}_norm")
    return on_grid(backbone, norm(backbone.get_layer(name).output), dtype)


def on_grid(backbone: keras.Model, tokens: Any, dtype: Any) -> Any:
    """Returns the patch tokens (B, h, w, D) of a backbone's tokens (B, T, D)."""
    config = config_of(backbone)
    crop = keras.layers.Cropping1D((config.num_prefix_tokens, 0), dtype=dtype)
    return keras.layers.Reshape((*config.image_grid, -1), dtype=dtype)(crop(tokens))


def quarter_size_features(backbone: keras.Model, width: int, dtype: Any) -> Any:
    """Returns features (B, H/4, W/4, E) from the tokens of four blocks and from the image.

    Tokens describe the content of the image in steps of a patch, convolutions its edges.

    Reference: https://arxiv.org/abs/2205.08534
    """
    depth = config_of(backbone).num_layers
    norm = functools.partial(layers.LayerNorm, config_of(backbone).epsilon, dtype=dtype)
    blocks = sorted({max(depth * part // 4 - 1, 0) for part in range(1, 5)})
    tokens = [patch_tokens(backbone, block, dtype) for block in blocks]
    concat = keras.layers.Concatenate(dtype=dtype)(tokens) if len(tokens) > 1 else tokens[0]
    coarse = keras.layers.Conv2D(width, 1, dtype=dtype, name="adapter_tokens")(concat)
    coarse = norm(name="adapter_tokens_norm")(coarse)
    fine = backbone.input
    convolutions = ((_DETAIL, 2), (_DETAIL, 1), (2 * _DETAIL, 2), (width, 1))
    for index, (channels, stride) in enumerate(convolutions):
        name = f"adapter_image_{index}"
        fine = keras.layers.Conv2D(channels, 3, stride, "same", dtype=dtype, name=name)(fine)
        fine = keras.layers.ReLU(dtype=dtype)(norm(name=f"{name}_norm")(fine))
    coarse = keras.layers.Resizing(*fine.shape[1:3], "bilinear", dtype=dtype)(coarse)
    mixed = keras.layers.Add(dtype=dtype)([coarse, fine])
    for index in range(2):
        step = keras.layers.SeparableConv2D(
            width, 3, padding="same", activation="relu", dtype=dtype, name=f"adapter_mix_{index}"
        )(mixed)
        mixed = keras.layers.Add(dtype=dtype)([mixed, step])
    return norm(name="adapter_norm")(mixed)


def Segmenter(  # noqa: N802
    backbone: keras.Model,
    classes: int,
    head: str = "adapter",
    width: int = WIDTH,
    name: str = "segmenter",
    dtype: Any = None,
) -> keras.Model:
    """Builds a model that classifies every pixel, on a Vision Transformer.

    Args:
        backbone: A model of this package; its head, if it has one, is not used.
        classes: Number K of classes.
        head: `"adapter"`: tokens of four blocks and convolutions of the image, at a quarter of its
            size; or `"linear"`: the tokens of the last block alone, as in linear evaluations.
        width: Channels of the adapter.
        name: Name of the model.
        dtype: Keras dtype or policy of the new layers; by default the global policy.

    Returns:
        A functional model from images (B, H, W, C) to logits (B, H, W, K), float32.

    Raises:
        ValueError: If `backbone` is not a model of this package, or an argument is out of range.

    Examples:
        >>> from keras_vit.zoo import ViTMicro4
        >>> backbone = ViTMicro4(weights=None, include_top=False, input_shape=(16, 24, 3))
        >>> Segmenter(backbone, classes=5).output_shape
        (None, 16, 24, 5)
    """
    arguments.one_of("head", head, ("adapter", "linear"))
    arguments.positive_int("classes", classes)
    size = fixed_size(backbone)
    config, policy = config_of(backbone), dtype or keras.config.dtype_policy()
    if head == "linear":
        features = patch_tokens(backbone, config.num_layers - 1, policy)
    else:
        features = quarter_size_features(backbone, arguments.positive_int("width", width), policy)
    logits = keras.layers.Conv2D(classes, 1, dtype="float32", name="head")(features)
    logits = keras.layers.Resizing(*size, "bilinear", dtype="float32", name="logits")(logits)
    return with_loss_scaling(keras.Model(backbone.input, logits, name=name))
