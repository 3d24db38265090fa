from __future__ import annotations

import numpy as np
import pytest

from keras_vit.visualization import filter_plot, position_similarity_plot, token_colour_sheet
from tests.visualization.pictures import drawn

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("grid", "shape", "shown"),
    [((3, 5), (11, 29), range(5)), ((14, 14), (104, 104), range(0, 14, 2))],
)
def test_position_similarity_puts_a_picture_where_its_patch_is(
    grid: tuple[int, int], shape: tuple[int, int], shown: range
) -> None:
    similarity = RNG.uniform(-1, 1, (*grid, *grid))
    axes = drawn(position_similarity_plot(similarity)).axes[0]
    mosaic = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert mosaic.shape == shape
    h, w = grid
    second = list(shown)[1]
    corner = mosaic[:h, w + 1 : 2 * w + 1]
    np.testing.assert_allclose(corner, similarity[0, second])
    assert np.isnan(mosaic[h]).all()
    assert [int(t.get_text()) for t in axes.get_xticklabels()] == [k + 1 for k in shown]
    assert axes.images[0].get_clim() == (-1, 1)


def test_filters_are_drawn_around_grey() -> None:
    components = np.zeros((9, 4, 5, 3))
    components[0, 1, 2, 0], components[0, 3, 4, 2] = 2.0, -1.0
    figure = drawn(filter_plot(components))
    assert len(figure.axes) == 14  # two rows of seven
    pixels = figure.axes[0].images[0].get_array()
    assert pixels[1, 2].tolist() == [255, 128, 128]
    assert pixels[3, 4].tolist() == [128, 128, 64]


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (5, 4, 4, 64), (4, 4, 3)])
def test_filters_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="`components` must be pictures"):
        filter_plot(np.zeros(shape))


def test_token_colours_stand_below_their_images() -> None:
    colours = RNG.random((2, 2, 3, 3))
    figure = drawn(token_colour_sheet(np.zeros((2, 8, 12, 3)), colours))
    shown = figure.axes[3].images[0].get_array()
    np.testing.assert_allclose(shown, np.round(colours[1] * 255))
    with pytest.raises(ValueError, match="Received: 1 for 2 images"):
        token_colour_sheet(np.zeros((2, 8, 12, 3)), colours[:1])
