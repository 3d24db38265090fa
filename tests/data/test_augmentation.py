from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.augmentation import random_flip, random_resized_crop
from keras_vit.preprocessing import Preprocessing

CONTRACT = Preprocessing(size=(13, 17), interpolation="nearest")


def coordinates(height: int, width: int) -> np.ndarray:
    """An image whose first two channels tell each pixel's row and column."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, rows * 0], axis=-1).astype("uint8")


def test_crop_keeps_area_and_ratio_in_their_ranges() -> None:
    areas, ratios = [], []
    for i in range(200):
        crop = random_resized_crop(
            coordinates(190, 250), [7, i], CONTRACT, area=(0.3, 0.5), ratio=(0.8, 1.5)
        ).numpy()
        (top, left), (bottom, right) = crop[0, 0, :2].astype(int), crop[-1, -1, :2].astype(int)
        # 13 x 17 samples at the centres of equal cells
        height, width = (bottom - top) * 13 / 12, (right - left) * 17 / 16
        areas.append(height * width / (190 * 250))
        ratios.append(width / height)
    # One pixel more or less on each side of the sampled cells is 3 %.
    assert min(areas) > 0.3 * 0.97
    assert max(areas) < 0.5 * 1.03
    assert min(ratios) > 0.8 * 0.97
    assert max(ratios) < 1.5 * 1.03
    assert max(areas) - min(areas) > 0.15
    assert max(ratios) - min(ratios) > 0.5


def test_crop_falls_back_to_the_whole_image() -> None:
    image = coordinates(2, 200)  # no rectangle of ratio 1 has half of its area
    crop = random_resized_crop(image, [1, 2], CONTRACT, area=(0.5, 1.0), ratio=(0.99, 1.01))
    assert (crop[0, 0, 1], crop[-1, -1, 1]) == (5, 194)


def test_crop_has_static_shape_in_a_graph() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
    def crop(image: tf.Tensor) -> tf.Tensor:
        result = random_resized_crop(image, [1, 2], CONTRACT)
        assert result.shape == (13, 17, 3)
        return result

    image = coordinates(50, 37)
    np.testing.assert_array_equal(crop(image), random_resized_crop(image, [1, 2], CONTRACT))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_crop_takes_tiny_images(shape: tuple[int, int]) -> None:
    for i in range(7):
        assert random_resized_crop(coordinates(*shape), [0, i], CONTRACT).shape == (13, 17, 3)


def test_crop_and_flip_follow_from_their_seed() -> None:
    image = coordinates(50, 37)
    crops = [random_resized_crop(image, [3, i], CONTRACT).numpy().tobytes() for i in range(5)]
    again = [random_resized_crop(image, [3, i], CONTRACT).numpy().tobytes() for i in range(5)]
    assert crops == again
    assert len(set(crops)) == 5


def test_flip_mirrors_half_of_the_images() -> None:
    image = coordinates(5, 7)
    flipped = [random_flip(image, [11, i]).numpy() for i in range(200)]
    mirrored = [bool((f == image[:, ::-1]).all()) for f in flipped]
    kept = [bool((f == image).all()) for f in flipped]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 70 <= sum(mirrored) <= 130  # 100, plus or minus 4 standard deviations
