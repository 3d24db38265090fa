"""Figures of detection: boxes on images, and precision over recall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from keras_vit.tasks.detection.report import DetectionReport
from keras_vit.visualization.drawing import palette, plots, shorten

_SIDE = 480  # pixels of the longer side of an image


def boxes_on(
    image: np.ndarray, rows: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> np.ndarray:
    """Returns an image (H, W, C), in [0, 255], with boxes (M, 4 or more) of classes (M,) on it."""
    factor = _SIDE / max(image.shape[:2])
    pixels = np.broadcast_to(image, (*image.shape[:2], 3)).astype(np.uint8)
    size = [max(1, round(side * factor)) for side in image.shape[1::-1]]
    picture = Image.fromarray(pixels).resize(size)
    draw, colors = ImageDraw.Draw(picture), palette(max(len(names), 1))
    for row, label in zip(np.asarray(rows), labels.astype(int), strict=True):
        top, left, bottom, right = (row[:4] * factor).tolist()
        color = tuple(colors[label].tolist())
        draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), outline=color)
        draw.text((left + 2, top), shorten(names[label], 12), fill=color)
    return np.asarray(picture)


def objects_on(image: np.ndarray, target: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Returns an image with the true objects (M, 6) on it, see `data.boxes.Objects`."""
    rows = target[target[:, 4] >= 0]
    return boxes_on(image, rows, rows[:, 4], names)


def precision_recall(report: DetectionReport) -> Figure:
    """Draws the precision of each class over its recall, at an IoU of 0.5."""
    figure, axes = plots(6.0, 4.0)
    recall = np.linspace(0, 1, report.precision.shape[1])
    colors = palette(len(report.names)) / 255
    for label, row in enumerate(report.per_class):
        if row.objects:
            name = f"{shorten(row.name)} (AP50 {row.ap50:.3f})"
            axes.plot(recall, report.precision[0, :, label, 0], label=name, color=colors[label])
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    axes.legend(fontsize=7)
    return figure
