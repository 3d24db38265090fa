"""Figures of segmentation: overlays of masks on images, and scores of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from keras_vit.data.masks import IGNORED
from keras_vit.tasks.dense import sheet
from keras_vit.tasks.segmentation.report import SegmentationReport
from keras_vit.visualization.drawing import GRAY, palette, plots, shorten

_MAX_SIDE = 480  # pixels of the longer side of an image
_OPACITY = 0.55  # of a mask on its image


def overlay(image: np.ndarray, mask: np.ndarray, classes: int) -> np.ndarray:
    """Returns an image (H, W, C), in [0, 255], with the colors of a mask's classes (H, W) on it.

    For images larger than 480 pixels, every second, third, ... pixel is returned.
    """
    step = -(-max(image.shape[:2]) // _MAX_SIDE)
    image, mask = image[::step, ::step], mask[::step, ::step]
    image = np.broadcast_to(image, (*image.shape[:2], 3)).astype(float)
    colors = np.concatenate([palette(classes), np.zeros((256 - classes, 3), np.uint8)])
    opacity = (mask != IGNORED)[..., None] * _OPACITY
    return (image * (1 - opacity) + colors[mask] * opacity).round().astype(np.uint8)


def overlays(
    images: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    names: Sequence[str],
    titles: Sequence[str] | None = None,
) -> Figure:
    """Draws images with their masks, at most four in a row, and the colors of the classes."""
    drawn = [overlay(*pair, len(names)) for pair in zip(images, masks, strict=True)]
    return with_legend(drawn, names, titles)


def with_legend(
    drawn: Sequence[np.ndarray], names: Sequence[str], titles: Sequence[str] | None = None
) -> Figure:
    """Draws images from `overlay`, at most four in a row, and the colors of the classes."""
    figure = sheet(drawn, titles, margin=0.6)
    colors = zip(palette(len(names)) / 255, names, strict=True)
    patches = [Patch(color=color, label=shorten(name)) for color, name in colors]
    figure.legend(handles=patches[:30], loc="outside lower center", ncols=6, fontsize=7)
    return figure


def class_scores(report: SegmentationReport) -> Figure:
    """Draws the IoU of each class, the lowest first."""
    rows = sorted((row for row in report.per_class if row.pixels), key=lambda row: row.iou)
    figure, axes = plots(6.0, 0.25 * len(rows) + 1.0)
    axes.barh(range(len(rows)), [row.iou for row in rows], color=GRAY)
    axes.set_yticks(range(len(rows)), [shorten(row.name) for row in rows])
    axes.set(xlim=(0, 1), xlabel=f"IoU (mean {report.mean_iou:.3f})")
    axes.invert_yaxis()
    return figure
