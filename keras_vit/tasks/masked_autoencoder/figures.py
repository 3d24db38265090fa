"""Figure with original, masked and reconstructed images."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from keras_vit.visualization.drawing import show, tiles


def reconstruction_sheet(*columns: np.ndarray) -> Figure:
    """Draws original images, masked images and their reconstructions by a masked autoencoder."""
    rows, titles = len(columns[0]), ("original", "masked", "reconstruction")
    figure, grid = tiles(rows, len(columns), len(columns) * 2.1, rows * 2.1 + 0.3)
    for place, title, images in zip(grid.T, titles, columns, strict=True):
        place[0].set_title(title, fontsize=10)
        for axes, image in zip(place, images, strict=True):
            show(axes, image, interpolation="nearest")
    return figure
