"""Figure with original, masked and reconstructed images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keras_vit.visualization.drawing import save_figure, show


def reconstruction_sheet(
    original: np.ndarray,
    masked: np.ndarray,
    reconstruction: np.ndarray,
    path: str | os.PathLike[str],
) -> Path:
    """Draws original images, masked images and their reconstructions by a masked autoencoder."""
    return save_figure(_reconstruction_figure(original, masked, reconstruction), path)


def _reconstruction_figure(*columns: np.ndarray) -> Figure:
    rows = len(columns[0])
    figure = Figure(figsize=(len(columns) * 2.1, rows * 2.1 + 0.3), layout="constrained")
    grid = figure.subplots(rows, len(columns), squeeze=False)
    for place, (title, images) in enumerate(
        zip(("original", "masked", "reconstruction"), columns, strict=True)
    ):
        grid[0, place].set_title(title, fontsize=10)
        for axes, image in zip(grid[:, place], images, strict=True):
            axes.set_axis_off()
            show(axes, image, interpolation="nearest")
    return figure
