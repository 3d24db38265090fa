"""Visualization of position embeddings, patch embedding filters and token features.

Letters: B batch; h, w rows and columns of patches; P, Q patch height and width; C channels; N
patches; D hidden size.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from keras_vit import arguments, layers
from keras_vit.models import FeatureExtractor
from keras_vit.models.cloning import layers_of
from keras_vit.visualization.drawing import show, tiles


def position_similarity(model: keras.Model) -> np.ndarray:
    """Computes the cosine similarity between the position embeddings of all pairs of patches.

    Args:
        model: A model of keras_vit, or a model that contains one.

    Returns:
        Cosine similarities (h, w, h, w) in [-1, 1], on the grid of the stored table; [i, j] is the
        map of similarities to patch (i, j).

    Raises:
        ValueError: If the model has no Vision Transformer, or no position embeddings.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> position_similarity(model).shape
        (2, 3, 2, 3)

    Reference: Figure 7 (center) of https://arxiv.org/abs/2010.11929
    """
    encoder = _only_layer(model, layers.PatchEncoder)
    table = keras.ops.convert_to_numpy(encoder.positions()).astype(np.float64)  # (h, w, D)
    unit = table / np.maximum(np.linalg.norm(table, axis=-1, keepdims=True), 1e-12)
    return np.einsum("ijd,kld->ijkl", unit, unit)


def filter_components(model: keras.Model, number: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Computes the principal components of the patch embedding filters.

    Args:
        model: A model of keras_vit, or a model that contains one, without a ResNet stem.
        number: Maximum number of components.

    Returns:
        Components (number, P, Q, C), each of length 1, and the fraction of variance explained by
        each, (number,), the largest first.

    Raises:
        ValueError: If the model has no Vision Transformer, or has a ResNet stem.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> components, shares = filter_components(model, number=5)
        >>> components.shape
        (5, 4, 4, 3)

    Reference: Figure 7 (left) of https://arxiv.org/abs/2010.11929
    """
    arguments.positive_int("number", number)
    encoder, patches = _only_layer(model, layers.PatchEncoder), _only_layer(model, layers.Patches)
    if any(isinstance(layer, layers.ResNetStem) for layer in layers_of(model)):
        raise ValueError(
            "`model` must embed patches of pixels; filters applied to ResNet features are not "
            f"images. Received: the hybrid {model.name!r}"
        )
    kernel = keras.ops.convert_to_numpy(encoder.projection.kernel)  # (PQC, D)
    pca = PCA(min(number, *kernel.shape)).fit(kernel.T)
    shape = (len(pca.components_), *patches.patch_size, -1)
    return pca.components_.reshape(shape), pca.explained_variance_ratio_


def token_colors(
    model: keras.Model | FeatureExtractor, images: Any, *, block: int = -1
) -> np.ndarray:
    """Maps patch tokens to colors, so that similar tokens have similar colors.

    The first three principal components of the tokens of all images become red, green and blue,
    each scaled from its minimum to its maximum.

    Args:
        model: A model of keras_vit, a model that contains one, or its `FeatureExtractor`.
        images: Images scaled by the model's preprocessing, (B, H, W, C).
        block: Index of the block whose output tokens are used, after the encoder's last norm; may
            be negative.

    Returns:
        Colors (B, h, w, 3) in [0, 1]. The signs of the components are arbitrary: the colors of
        another set of images may differ.

    Raises:
        ValueError: If `block` is out of range.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> images = np.random.default_rng(0).normal(size=(2, 8, 12, 3))
        >>> token_colors(model, images).shape
        (2, 2, 3, 3)

    Reference: after Figure 1 of https://arxiv.org/abs/2304.07193
    """
    extractor = FeatureExtractor.of(model)
    depth = len(extractor.blocks)
    if not -depth <= block < depth:
        raise ValueError(f"`block` must be in [{-depth}, {depth}). Received: block={block}")
    activations = extractor.activations(images)
    tokens = activations.tokens[1:][block]
    if extractor.norm is not None:
        tokens = keras.ops.convert_to_numpy(extractor.norm(tokens))
    h, w = activations.grid
    patches = tokens[:, -h * w :].reshape(-1, tokens.shape[-1])  # (BN, D)
    components = PCA(min(3, *patches.shape)).fit_transform(patches)
    colors = np.pad(components, [(0, 0), (0, 3 - components.shape[1])]).astype(np.float64)
    colors -= colors.min(axis=0)
    colors /= np.maximum(colors.max(axis=0), 1e-12)
    return colors.reshape(-1, h, w, 3)


def _only_layer(model: keras.Model, kind: type) -> Any:
    matching = [layer for layer in layers_of(model) if isinstance(layer, kind)]
    if len(matching) != 1:
        raise ValueError(
            "`model` must be a Vision Transformer of keras_vit, or contain one. Received: "
            f"model={model.name!r} with {len(matching)} {kind.__name__} layers"
        )
    return matching[0]


_MAX_TILES = 7  # pictures per side of the grid, as in the paper
_NUM_COLUMNS = 7


def position_similarity_plot(similarity: np.ndarray) -> Figure:
    """Draws the similarity of position embeddings as a grid of maps, one per selected patch.

    Args:
        similarity: Cosine similarities (h, w, h, w) returned by `position_similarity`.

    Returns:
        The figure, with each map at the position of its patch. Of more than 7 rows or columns
        only every second, third ... is drawn.

    Examples:
        >>> similarity = np.ones((3, 5, 3, 5))
        >>> position_similarity_plot(similarity).axes[0].images[0].get_array().shape
        (11, 29)
    """
    h, w = similarity.shape[:2]
    rows, columns = (np.arange(0, n, math.ceil(n / _MAX_TILES)) for n in (h, w))
    selected = np.asarray(similarity, np.float64)[np.ix_(rows, columns)]
    framed = np.pad(selected, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=np.nan)
    mosaic = framed.swapaxes(1, 2).reshape(len(rows) * (h + 1), -1)[:-1, :-1]
    ratio = mosaic.shape[0] / mosaic.shape[1]
    figure = Figure(figsize=(5.4, 4.6 * ratio + 0.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(mosaic, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    axes.set_xticks((np.arange(len(columns)) * (w + 1)) + w / 2 - 0.5, columns + 1)
    axes.set_yticks((np.arange(len(rows)) * (h + 1)) + h / 2 - 0.5, rows + 1)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="column of the patch", ylabel="row of the patch")
    bar = figure.colorbar(image, ax=axes, shrink=0.85, label="cosine similarity")
    bar.outline.set_visible(False)
    return figure


def filter_plot(components: np.ndarray) -> Figure:
    """Draws the principal components of the patch embedding filters.

    Args:
        components: Components (number, P, Q, C) returned by `filter_components`, of one or three
            channels.

    Returns:
        The figure; each component is scaled by its largest absolute value, and zero is gray.

    Raises:
        ValueError: If there is no component, or its shape is not that of an image.

    Examples:
        >>> len(filter_plot(np.ones((5, 4, 4, 3))).axes)
        7
    """
    if components.ndim != 4 or not len(components) or components.shape[-1] not in (1, 3):
        raise ValueError(
            "`components` must be images of shape (number, P, Q, C) with one or three channels. "
            f"Received: an array of the shape {components.shape}"
        )
    rows = math.ceil(len(components) / _NUM_COLUMNS)
    figure, grid = tiles(rows, _NUM_COLUMNS, _NUM_COLUMNS * 0.85, rows * 0.85 + 0.1)
    for axes, component in zip(grid.ravel(), components, strict=False):
        farthest = max(float(np.abs(component).max()), 1e-12)
        show(axes, (component / farthest + 1) * 127.5, interpolation="nearest")
    return figure


def token_color_sheet(pixels: np.ndarray, colors: np.ndarray) -> Figure:
    """Draws images, and below each image the colors of its patch tokens.

    Args:
        pixels: Images (B, H, W, C), [0, 255].
        colors: Colors (B, h, w, 3) in [0, 1] returned by `token_colors`.

    Returns:
        The figure.

    Raises:
        ValueError: If the numbers of images and color maps differ.

    Examples:
        >>> len(token_color_sheet(np.zeros((2, 8, 12, 3)), np.zeros((2, 2, 3, 3))).axes)
        4
    """
    if len(pixels) != len(colors):
        raise ValueError(
            f"`colors` must have one entry for each image. Received: {len(colors)} for "
            f"{len(pixels)} images"
        )
    number, ratio = len(pixels), pixels.shape[1] / pixels.shape[2]
    figure, grid = tiles(2, number, number * 1.5, 3.0 * ratio + 0.1)
    for column in range(number):
        show(grid[0, column], pixels[column])
        show(grid[1, column], colors[column] * 255, interpolation="nearest")
    return figure
