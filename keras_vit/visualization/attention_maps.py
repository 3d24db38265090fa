"""Attention maps, attention distances, and relevance maps by four methods.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches; N = hw
patches; T tokens; D hidden size; K heads; L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.models import Activations, FeatureExtractor


def attention_maps(
    model: keras.Model | FeatureExtractor, images: Any, *, query: tuple[int, int] | None = None
) -> np.ndarray:
    """Returns the attention from one token to all patches, for every block and head.

    Args:
        model: A model of keras_vit, a model that contains one, or its `FeatureExtractor`.
        images: Images scaled by the model's preprocessing, (B, H, W, C).
        query: Row and column of the query patch. By default the token that the output is pooled
            from, or the mean over several tokens (`FeatureExtractor.reading`).

    Returns:
        Attention weights (L, B, K, h, w), float32. The attention to class, distillation and
        register tokens is left out, so a map need not sum to 1.

    Raises:
        ValueError: If `query` is outside the grid of patches.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> images = np.zeros((2, 8, 12, 3), "float32")
        >>> attention_maps(model, images).shape
        (4, 2, 3, 2, 3)
        >>> attention_maps(model, images, query=(1, 2)).shape
        (4, 2, 3, 2, 3)
    """
    extractor = FeatureExtractor.of(model)
    activations = extractor.activations(images)
    h, w = activations.grid
    tokens = activations.attention[0].shape[-1]
    if query is None:
        query_weights = extractor.reading(tokens)
    elif 0 <= query[0] < h and 0 <= query[1] < w:
        query_weights = np.eye(tokens, dtype="float32")[tokens - h * w + query[0] * w + query[1]]
    else:
        raise ValueError(
            f"`query` must be the row and column of one of the {h} x {w} patches, counted from "
            f"0. Received: query={query}"
        )
    maps = np.einsum("t,lbktu->lbku", query_weights, np.stack(activations.attention))
    return maps[..., -h * w :].reshape(*maps.shape[:-1], h, w)


def mean_attention_distance(
    attention: Sequence[np.ndarray], grid: tuple[int, int], patch_size: tuple[int, int]
) -> np.ndarray:
    """Computes the mean distance between a patch and the patches that it attends to.

    The distance between two patches is the distance between their centers in the image. It is
    weighted by the attention and averaged over the query patches. Class, distillation and register
    tokens are left out as queries and as keys; the other weights are not renormalized. The mean
    attention distance is the counterpart of a convolution's receptive field.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.
        grid: Rows and columns h, w of patches, which are the last hw tokens.
        patch_size: Height and width of a patch in pixels (`FeatureExtractor.patch_stride`).

    Returns:
        Distances in pixels, (L, B, K).

    Raises:
        ValueError: If there are fewer tokens than patches.

    Examples:
        >>> identity = np.eye(6).reshape(1, 1, 6, 6)
        >>> mean_attention_distance([identity], (2, 3), (16, 16))
        array([[[0.]]])

    Reference: Figures 7 (right) and 11 of https://arxiv.org/abs/2010.11929, without an exact
    definition; here as in https://github.com/sayakpaul/probing-vits
    """
    num_patches = grid[0] * grid[1]
    if not len(attention) or np.shape(attention[0])[-1] < num_patches:
        shapes = [np.shape(a) for a in attention]
        raise ValueError(
            f"`attention` must have a token for each of the {grid[0]} x {grid[1]} patches, in "
            f"at least one block. Received: arrays with shapes {shapes}"
        )
    rows, columns = np.divmod(np.arange(num_patches), grid[1])
    vertical = (rows[:, None] - rows) * patch_size[0]
    horizontal = (columns[:, None] - columns) * patch_size[1]
    distances = np.hypot(vertical, horizontal)  # (N, N)
    patches = (np.asarray(a, np.float64)[..., -num_patches:, -num_patches:] for a in attention)
    return np.stack([(a * distances).sum(axis=-1).mean(axis=-1) for a in patches])


METHODS = ("attention", "rollout", "gradient_rollout", "grad_cam")
CLASS_METHODS = ("gradient_rollout", "grad_cam")


def relevance_maps(
    model: keras.Model | FeatureExtractor,
    images: Any,
    method: str = "gradient_rollout",
    *,
    classes: Any = None,
) -> np.ndarray:
    """Computes relevance maps of images, with one value per patch, by one of four methods.

    - `"attention"`: the last block's attention of the pooled token, averaged over heads.
    - `"rollout"`: attention multiplied through all blocks (`rollout`).
    - `"gradient_rollout"`: rollout with each head weighted by the gradient of the class's score
      (`gradient_rollout`). It depends on the class, and was the most faithful of the four methods
      in the measurements of docs/looking_inside.md.
    - `"grad_cam"`: the input tokens of the last block, weighted by the class's mean gradient.

    The pooled token is the class token (the mean with the distillation token, if both have a head).
    With average or max pooling all patches have equal weight; with attention pooling they are
    weighted by its attention.

    Args:
        model: A model of keras_vit, a model that contains one, or its `FeatureExtractor`, which
            can be reused.
        images: Images scaled by the model's preprocessing, (B, H, W, C).
        method: Name of the method.
        classes: The class to explain for each image, (B,); by default the most probable class.
            `"attention"` and `"rollout"` are the same for all classes.

    Returns:
        Non-negative maps (B, h, w), float32; only the order and the ratios of values within an
        image are meaningful.

    Raises:
        ValueError: If the method is unknown, the model is not a Vision Transformer, or the method
            depends on a class and the model does not return one vector for each image.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> relevance_maps(model, np.zeros((2, 8, 12, 3), "float32"), "rollout").shape
        (2, 2, 3)

    Reference: https://arxiv.org/abs/2005.00928 (rollout), https://arxiv.org/abs/2103.15679
    (gradient rollout), https://arxiv.org/abs/1610.02391 (Grad-CAM)
    """
    arguments.one_of("method", method, METHODS)
    extractor = FeatureExtractor.of(model)
    return maps_of(extractor, activations_for(extractor, images, [method], classes), method)


def activations_for(
    extractor: FeatureExtractor, images: Any, methods: Sequence[str], classes: Any
) -> Activations:
    """Returns the activations for relevance maps, with gradients if any map is of a class."""
    if set(methods) & set(CLASS_METHODS):
        return extractor.activations_and_gradients(images, classes)
    return extractor.activations(images)


def maps_of(extractor: FeatureExtractor, activations: Activations, method: str) -> np.ndarray:
    """Computes relevance maps from activations, so that several methods can share them."""
    arguments.one_of("method", method, METHODS)
    if method in CLASS_METHODS and activations.token_gradients is None:
        raise ValueError(
            "`activations` must contain gradients to compute maps of a class, as returned by "
            f"`FeatureExtractor.activations_and_gradients`. Received: none, with method={method!r}"
        )
    if method == "grad_cam":
        gradients = np.asarray(activations.token_gradients)[:, extractor.num_prefix_tokens :]
        weights = gradients.mean(axis=1, keepdims=True)  # (B, 1, D)
        relevance = (activations.tokens[-2] * weights).sum(axis=-1)
        return _on_grid(np.maximum(relevance, 0), activations.grid)
    attention, pooling = activations.attention, activations.pooling
    batch, _, tokens, _ = attention[0].shape
    token_weights = np.tile(extractor.reading(tokens), (batch, 1))  # (B, T)
    if activations.pooling_gradient is not None and pooling is not None and method in CLASS_METHODS:
        token_weights = head_mean(pooling, activations.pooling_gradient)[:, 0]
    elif pooling is not None:
        token_weights = pooling.mean(axis=1)[:, 0]
    if method == "gradient_rollout":
        contributions = gradient_rollout(attention, activations.attention_gradients or [])
    elif method == "rollout":
        contributions = rollout(attention)[-1]
    elif pooling is not None:  # the attention pooling is the last attention
        contributions = np.tile(np.eye(tokens), (batch, 1, 1))
    else:
        contributions = attention[-1].mean(axis=1)
    return _on_grid(np.einsum("bt,btu->bu", token_weights, contributions), activations.grid)


def _on_grid(relevance: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Drops the prefix tokens of relevance (B, T) and reshapes the rest to maps (B, h, w)."""
    return relevance[:, -grid[0] * grid[1] :].reshape(-1, *grid).astype(np.float32)


def rollout(attention: Sequence[np.ndarray]) -> np.ndarray:
    """Computes attention rollout: input tokens' contributions to the tokens after each block.

    Attention is averaged over heads, the residual connection added as an identity matrix, rows
    divided by their sums, and the matrices multiplied from the first block to the last.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.

    Returns:
        Array (L, B, T, T); rows sum to 1.

    Examples:
        >>> even = np.full((1, 2, 2, 2), 0.5)
        >>> rollout([even])[0, 0].tolist()
        [[0.75, 0.25], [0.25, 0.75]]

    Reference: https://arxiv.org/abs/2005.00928
    """
    rollouts: list[np.ndarray] = []
    for weights in attention:
        mixed = np.asarray(weights, np.float64).mean(axis=1) + np.eye(weights.shape[-1])
        mixed /= mixed.sum(axis=-1, keepdims=True)
        rollouts.append(mixed @ rollouts[-1] if rollouts else mixed)
    return np.stack(rollouts)


def gradient_rollout(
    attention: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
) -> np.ndarray:
    """Computes the gradient-weighted rollout for a class, from input tokens to final tokens.

    Each head is weighted by the gradient of the class's score. With A the attention and G its
    gradient, R = I, then R <- R + mean over heads of max(G * A, 0) R, from the first block to the
    last.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.
        gradients: Gradients of the class's score, of the same shapes.

    Returns:
        Array (B, T, T).

    Examples:
        >>> even = np.full((1, 1, 2, 2), 0.5)
        >>> gradient_rollout([even], [np.array([[[[1.0, -1.0], [0.0, 0.0]]]])])[0].tolist()
        [[1.5, 0.0], [0.0, 1.0]]

    Reference: equations 5 and 6 of https://arxiv.org/abs/2103.15679 (self-attention)
    """
    batch, _, tokens, _ = np.shape(attention[0])
    relevance = np.tile(np.eye(tokens), (batch, 1, 1))
    for weights, gradient in zip(attention, gradients, strict=True):
        relevance = relevance + head_mean(weights, gradient) @ relevance
    return relevance


def head_mean(attention: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Averages the positive part of attention times gradient over all heads."""
    return np.maximum(np.asarray(attention, np.float64) * gradients, 0).mean(axis=1)
