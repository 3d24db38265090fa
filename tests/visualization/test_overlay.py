from __future__ import annotations

import numpy as np
import pytest

from keras_vit.visualization import overlay
from keras_vit.visualization.overlay import smooth


def test_overlay_is_blue_where_least_counts_and_red_where_most_does() -> None:
    maps = np.array([[[0.0, 1.0]]])
    picture = overlay(np.full((1, 20, 40, 3), 128.0), maps, strength=1.0)[0]
    assert picture.dtype == np.uint8
    low, high = picture[10, 0], picture[10, -1]
    assert low.tolist() == [48, 18, 59]
    assert high.tolist() == [122, 4, 3]


def test_a_few_patches_do_not_hide_the_others() -> None:
    maps = np.zeros((1, 10, 10))
    maps[0, 0, :2] = 1000.0  # two of a hundred
    maps[0, 5:, 5:] = 1.0
    picture = overlay(np.full((1, 40, 40, 3), 128.0), maps, strength=1.0)[0]
    assert picture[35, 35].tolist() == picture[1, 1].tolist() == [122, 4, 3]


@pytest.mark.parametrize("channels", [1, 3])
def test_overlay_of_strength_zero_is_the_gray_image(channels: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 6, 8, channels)).astype("float64")
    found = overlay(pixels, np.ones((2, 3, 4)), strength=0.0)
    expected = np.round(pixels.mean(axis=-1, keepdims=True)).astype("uint8")
    np.testing.assert_array_equal(found, np.repeat(expected, 3, axis=-1))


def test_smooth_keeps_places_on_images_that_are_not_square() -> None:
    values = np.zeros((3, 5))
    values[2, 1] = 7.0
    found = smooth(values, (30, 50))
    assert found.shape == (30, 50)
    row, column = np.unravel_index(found.argmax(), found.shape)
    assert (row // 10, column // 10) == (2, 1)
    assert (found.min(), found.max()) == (0, 1)


def test_smooth_of_what_is_flat_is_nothing() -> None:
    assert smooth(np.full((2, 3), 5.0), (4, 6)).max() == 0


def test_overlay_needs_a_map_for_each_image() -> None:
    with pytest.raises(ValueError, match="Received: 2 maps for 1 images"):
        overlay(np.zeros((1, 4, 4, 3)), np.zeros((2, 2, 2)))
