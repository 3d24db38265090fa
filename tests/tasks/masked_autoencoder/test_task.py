from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.tasks.masked_autoencoder.task import reconstruction_sheet
from keras_vit.visualization.drawing import save_figure
from tests.visualization.pictures import drawn


def test_reconstruction_sheet_has_three_columns_and_a_row_for_each_image(tmp_path: Path) -> None:
    parts = [np.full((2, 5, 7, 3), value) for value in (300.0, 127.6, -9.0)]
    figure = drawn(reconstruction_sheet(*parts))
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ["original", "masked", "reconstruction"]
    assert len(figure.axes) == 6
    values = [np.unique(axes.images[0].get_array()).tolist() for axes in figure.axes]
    assert values == [[255], [128], [0]] * 2
    with Image.open(save_figure(reconstruction_sheet(*parts), tmp_path / "sheet.png")) as image:
        assert image.width > image.height


def test_reconstruction_sheet_of_gray_images(tmp_path: Path) -> None:
    part = np.zeros((1, 5, 7, 1))
    figure = drawn(reconstruction_sheet(part, part, part + 255))
    assert figure.axes[2].images[0].get_array().shape == (5, 7)
    assert figure.axes[2].images[0].get_clim() == (0, 255)
