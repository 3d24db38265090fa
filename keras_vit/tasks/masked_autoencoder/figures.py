"""Figure with original, masked and reconstructed images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keras_vit.visualization.drawing import save_figure, show, tiles


def reconstruction_sheet(
    original: np.ndarray,
    masked: np.ndarray,
    reconstruction: np.ndarray,
    path: str | os.PathLike[str],
) -> Path:
    """Draws original images, masked images and their reconstructions by a masked autoencoder."""
    return save_figure(_reconstruction_figure(original, masked, reconstruction), path)


def _reconstruction_figure(*columns: np.ndarray) -> Figure:
    rows, titles = len(columns[0]), ("original", "masked", "reconstruction")
    figure, grid = tiles(rows, len(columns), len(columns) * 2.1, rows * 2.1 + 0.3)
    for place, title, images in zip(grid.T, titles, columns, strict=True):
        place[0].set_title(title, fontsize=10)
        for axes, image in zip(place, images, strict=True):
            show(axes, image, interpolation="nearest")
    return figure
