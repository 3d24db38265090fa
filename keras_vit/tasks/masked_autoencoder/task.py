"""Masked autoencoder (MAE) task, which pre-trains an encoder without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_vit import data, models
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.dense import evenly_spaced
from keras_vit.tasks.masked_autoencoder.objective import (
    MaskedAutoencoderObjective,
    reconstructions,
)
from keras_vit.tasks.pretraining import Pretraining
from keras_vit.visualization.drawing import save_figure, show, tiles


class MaskedAutoencoder(Pretraining):
    """Pre-training of an encoder by the reconstruction of masked patches."""

    name = "masked_autoencoder"
    objective_class = MaskedAutoencoderObjective
    objective_fields = ("norm_pix", "decoder_width", "decoder_depth", "decoder_heads")

    def draw_training(
        self, run: RunFolder, objective: Any, validation: data.Examples
    ) -> dict[str, Path]:
        examples = evenly_spaced(validation)
        preprocessing = models.preprocessing_of(objective.network)
        batches = data.evaluation_dataset(examples, preprocessing, batch_size=len(examples))
        images, _ = next(iter(batches))
        columns = (
            preprocessing.to_rgb(preprocessing.unscale(images_of_column))
            for images_of_column in reconstructions(objective, images.numpy())
        )
        figure = reconstruction_sheet(*columns)
        return {"reconstruction": save_figure(figure, run.path / "reconstruction.png")}


def reconstruction_sheet(*columns: Any) -> Any:
    """Draws original images, masked images and their reconstructions; returns the figure."""
    rows, titles = len(columns[0]), ("original", "masked", "reconstruction")
    figure, grid = tiles(rows, len(columns), len(columns) * 2.1, rows * 2.1 + 0.3)
    for axes_of_column, title, images in zip(grid.T, titles, columns, strict=True):
        axes_of_column[0].set_title(title, fontsize=10)
        for axes, image in zip(axes_of_column, images, strict=True):
            show(axes, image, interpolation="nearest")
    return figure
