"""Figures of positions, filters and tokens: the paper's Figure 7, left and centre.

Letters: B batch; h, w rows and columns of patches; P, Q patch height and width; C channels.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from keras_vit.visualization.drawing import show

_MOST_TILES = 7  # a side of the grid of pictures, as in the paper
_IN_A_ROW = 7


def position_similarity_plot(similarity: np.ndarray) -> Figure:
    """Draws how alike position embeddings are, a small picture for each of some patches.

    Args:
        similarity: Cosine similarities (h, w, h, w), as `position_similarity` returns them.

    Returns:
        The figure: where in the image a picture stands, the patch stands that it is about. Of more
        than 7 rows or columns every second, third ... one is drawn.

    Example:
        >>> similarity = np.ones((3, 5, 3, 5))
        >>> position_similarity_plot(similarity).axes[0].images[0].get_array().shape
        (11, 29)
    """
    h, w = similarity.shape[:2]
    rows, columns = (np.arange(0, n, math.ceil(n / _MOST_TILES)) for n in (h, w))
    mosaic = np.full((len(rows) * (h + 1) - 1, len(columns) * (w + 1) - 1), np.nan)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            top, left = i * (h + 1), j * (w + 1)
            mosaic[top : top + h, left : left + w] = similarity[row, column]
    ratio = mosaic.shape[0] / mosaic.shape[1]
    figure = Figure(figsize=(5.4, 4.6 * ratio + 0.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(mosaic, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    axes.set_xticks((np.arange(len(columns)) * (w + 1)) + w / 2 - 0.5, columns + 1)
    axes.set_yticks((np.arange(len(rows)) * (h + 1)) + h / 2 - 0.5, rows + 1)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("column of the patch")
    axes.set_ylabel("row of the patch")
    bar = figure.colorbar(image, ax=axes, shrink=0.85)
    bar.set_label("cosine similarity")
    bar.outline.set_visible(False)
    return figure


def filter_plot(components: np.ndarray) -> Figure:
    """Draws principal components of the filters that embed a patch.

    Args:
        components: (number, P, Q, C), as `filter_components` returns them; of three channels or
            one.

    Returns:
        The figure; each component from its own lowest to its own highest value, grey for zero where
        both are as far.

    Raises:
        ValueError: If there is no component, or it is no picture.

    Example:
        >>> len(filter_plot(np.ones((5, 4, 4, 3))).axes)
        7
    """
    if components.ndim != 4 or not len(components) or components.shape[-1] not in (1, 3):
        raise ValueError(
            "`components` must be pictures (number, P, Q, C) of three channels or one. "
            f"Received: an array of the shape {components.shape}"
        )
    rows = math.ceil(len(components) / _IN_A_ROW)
    figure = Figure(figsize=(_IN_A_ROW * 0.85, rows * 0.85 + 0.1), layout="constrained")
    grid = figure.subplots(rows, _IN_A_ROW, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, component in zip(grid, components, strict=False):
        farthest = max(float(np.abs(component).max()), 1e-12)
        show(axes, (component / farthest + 1) * 127.5, interpolation="nearest")
    return figure


def token_colour_sheet(pixels: np.ndarray, colours: np.ndarray) -> Figure:
    """Draws images above the colours of their tokens.

    Args:
        pixels: Images (B, H, W, C), [0, 255].
        colours: (B, h, w, 3) in [0, 1], as `token_colours` returns them.

    Returns:
        The figure.

    Raises:
        ValueError: If the numbers of images and colours differ.

    Example:
        >>> len(token_colour_sheet(np.zeros((2, 8, 12, 3)), np.zeros((2, 2, 3, 3))).axes)
        4
    """
    if len(pixels) != len(colours):
        raise ValueError(
            "`colours` must have one picture for each image. "
            f"Received: {len(colours)} for {len(pixels)} images"
        )
    number, ratio = len(pixels), pixels.shape[1] / pixels.shape[2]
    figure = Figure(figsize=(number * 1.5, 3.0 * ratio + 0.1), layout="constrained")
    grid = figure.subplots(2, number, squeeze=False)
    for column in range(number):
        show(grid[0, column], pixels[column])
        show(grid[1, column], colours[column] * 255, interpolation="nearest")
    for axes in grid.ravel():
        axes.set_axis_off()
    return figure
