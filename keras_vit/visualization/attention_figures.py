"""Figures of attention maps, relevance maps and the faithfulness of relevance maps.

Letters: B batch; h, w rows and columns of patches; K heads; L blocks; S steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keras_vit.visualization.drawing import COLORS, GRAY, plots, shorten, show, tiles
from keras_vit.visualization.overlay import overlay

_TILE = 1.7  # inches
_LETTER = 0.068  # inches, width of a letter of a title
_NAMES = {
    "attention": "attention of the\nlast block",
    "rollout": "attention\nrollout",
    "gradient_rollout": "gradient-weighted\nrollout",
    "grad_cam": "Grad-CAM\nof tokens",
}
_BASELINES = {"center": (GRAY, "--"), "random": (GRAY, ":")}  # colors and lines


def attention_distance_plot(distances: np.ndarray, image_size: tuple[int, int]) -> Figure:
    """Plots the mean attention distance of each head by depth, as in Figure 7 of the ViT paper.

    Args:
        distances: Result of `mean_attention_distance` in pixels, (L, B, K); averaged over the
            images.
        image_size: Height and width of the images in pixels, for the title.

    Returns:
        The figure.

    Examples:
        >>> distances = np.random.default_rng(0).uniform(0, 90, (12, 5, 3))
        >>> attention_distance_plot(distances, (224, 224)).axes[0].get_xlabel()
        'block'
    """
    means = np.asarray(distances).mean(axis=1)  # (L, K)
    depth = np.arange(1, len(means) + 1)
    figure, axes = plots(5.6, 3.6)
    axes.plot(depth, means, "o", markersize=5, color=COLORS[0], alpha=0.75, markeredgecolor="none")
    axes.plot(depth, means.mean(axis=1), color=GRAY, linewidth=1.2, label="mean over the heads")
    axes.plot([], [], linestyle="none", marker="o", color=COLORS[0], label="a head")
    axes.set(xlabel="block", ylabel="mean attention distance (pixels)")
    axes.set_ylim(0, max(float(means.max()) * 1.08, 1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(f"images of {image_size[0]} x {image_size[1]} pixels", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def relevance_sheet(
    pixels: np.ndarray, maps: Mapping[str, np.ndarray], titles: Sequence[str] | None = None
) -> Figure:
    """Draws images overlaid with their relevance maps, with one row per image.

    Args:
        pixels: Images (B, H, W, C), [0, 255].
        maps: Maps (B, h, w) by the name of their method.
        titles: Text beside each image.

    Returns:
        The figure: the image, then an overlay for each method, from blue for the lowest to red for
        the highest relevance.

    Raises:
        ValueError: If the numbers of images, maps and titles differ, or there is no map.

    Examples:
        >>> maps = {"rollout": np.ones((2, 2, 3)), "grad_cam": np.ones((2, 2, 3))}
        >>> len(relevance_sheet(np.zeros((2, 8, 12, 3)), maps, ["daisy", "rose"]).axes)
        6
    """
    if not maps or (titles is not None and len(titles) != len(pixels)):
        raise ValueError(
            "`maps` must contain at least one method, and `titles` one entry for each image. "
            f"Received: {len(maps)} methods, {len(titles or ())} titles for {len(pixels)} images"
        )
    columns = [("", pixels)]
    columns += [(_NAMES.get(name, name), overlay(pixels, values)) for name, values in maps.items()]
    ratio = pixels.shape[1] / pixels.shape[2]
    longest = max((len(line) for title in titles or () for line in title.split("\n")), default=0)
    height = len(pixels) * (_TILE * ratio + 0.08) + 0.45
    width = len(columns) * (_TILE + 0.06) + longest * _LETTER
    figure, grid = tiles(len(pixels), len(columns), width, height)
    for axes_of_column, (name, images) in zip(grid.T, columns, strict=True):
        axes_of_column[0].set_title(name, fontsize=8)
        for axes, image in zip(axes_of_column, images, strict=True):
            show(axes, image)
    for axes, title in zip(grid[:, 0], titles or (), strict=False):
        axes.text(-0.06, 0.5, title, transform=axes.transAxes, ha="right", va="center", fontsize=8)
    return figure


def attention_sheet(pixels: np.ndarray, maps: np.ndarray) -> Figure:
    """Draws one token's attention over an image, with a row per block and a column per head.

    Args:
        pixels: One image (H, W, C), [0, 255].
        maps: Attention maps (L, K, h, w), such as `attention_maps(model, images)[:, 0]`.

    Returns:
        The figure; each map is scaled separately, see `overlay`.

    Examples:
        >>> len(attention_sheet(np.zeros((8, 12, 3)), np.ones((4, 3, 2, 3))).axes)
        12
    """
    blocks, heads = maps.shape[:2]
    ratio = pixels.shape[0] / pixels.shape[1]
    tile = min(_TILE, 9.0 / heads)
    figure = Figure(figsize=(heads * tile + 0.8, blocks * tile * ratio + 0.4), layout="constrained")
    grid = figure.subplots(blocks, heads, squeeze=False)
    for block, (row, block_maps) in enumerate(zip(grid, maps, strict=True), start=1):
        images = overlay(np.stack([pixels] * heads), block_maps)
        for axes, image in zip(row, images, strict=True):
            show(axes, image)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        row[0].set_ylabel(f"block {block}", fontsize=8)
    for head, axes in enumerate(grid[0], start=1):
        axes.set_title(f"head {head}", fontsize=8)
    return figure


def faithfulness_plot(
    deletion: Mapping[str, np.ndarray], insertion: Mapping[str, np.ndarray]
) -> Figure:
    """Plots the mean deletion and insertion curves of several relevance methods.

    Args:
        deletion: Probabilities (B, S + 1) by the name of the method (`Curves.deletion`).
        insertion: Probabilities (B, S + 1) by the name of the method (`Curves.insertion`).

    Returns:
        The figure.

    Raises:
        ValueError: If there is no curve, or the methods differ.

    Examples:
        >>> curves = {"rollout": np.ones((2, 5)), "random": np.zeros((2, 5))}
        >>> len(faithfulness_plot(curves, curves).axes)
        2
    """
    if not deletion or deletion.keys() != insertion.keys():
        raise ValueError(
            "`deletion` and `insertion` must contain the same kinds of maps, at least one. "
            f"Received: {list(deletion)} and {list(insertion)}"
        )
    figure, panels = plots(8.2, 3.5, 1, 2, sharey=True)
    titles = ("deletion (lower is more faithful)", "insertion (higher is more faithful)")
    for axes, title, curves in zip(panels, titles, (deletion, insertion), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            color, line = _BASELINES.get(name, (COLORS[index % len(COLORS)], "-"))
            fractions, label = np.linspace(0, 1, values.shape[1]), shorten(name.replace("_", " "))
            axes.plot(fractions, values.mean(axis=0), line, color=color, linewidth=1.6, label=label)
        axes.set_title(title, fontsize=9)
        axes.set(xlabel="fraction of the patches", ylim=(0, None))
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    panels[0].set_ylabel("mean probability of the class")
    panels[0].legend(frameon=False, fontsize=8)
    return figure
