"""Training, evaluation and serving see the same part of an image."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.augmentation import random_resized_crop
from keras_vit.data.decode_and_resize import resize_and_crop
from keras_vit.data.geometry import cut_off, random_box
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.named_recipes import RECIPES, recipe

SQUARE = Preprocessing(size=64, interpolation="bilinear", crop_fraction=1.0)
RATIOS = (0.2, 0.3, 0.5, 0.56, 0.7, 1.0, 1.5, 1.78, 2.5, 3.0, 5.0)


def ramp(height: int, width: int) -> np.ndarray:
    """An image whose channels rise from 0 to 250 along the rows and along the columns."""
    rows, columns = np.mgrid[:height, :width]
    levels = (250 * rows / (height - 1), 250 * columns / (width - 1), 0 * rows)
    return np.stack(levels, axis=-1).round().astype("uint8")


def sides_of(ratio: float) -> tuple[int, int]:
    return (200, round(200 * ratio)) if ratio >= 1 else (round(200 / ratio), 200)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("area", sorted({recipe(n).augmentation.crop_area for n in RECIPES}))
@pytest.mark.parametrize("size", [(224, 224), (224, 384)])
def test_crops_of_a_recipe_keep_proportions(
    area: tuple[float, float], ratio: float, size: tuple[int, int]
) -> None:
    sides = tf.constant(sides_of(ratio))
    for seed in range(5):
        _, box = random_box(sides, [seed, 7], Preprocessing(size=size), area)
        height, width = box.numpy() / size
        # Measured: 0.746 to 1.340, rounded to pixels.
        assert 0.74 < width / height < 1.35


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("resize", ["squash", "pad"])
def test_whole_images_are_seen_in_training_and_evaluation(resize: str, ratio: float) -> None:
    image = ramp(*sides_of(ratio))
    preprocessing = dataclasses.replace(SQUARE, resize=resize)
    evaluated = resize_and_crop(image, preprocessing).numpy().astype(int)
    trained = random_resized_crop(image, [1, 2], preprocessing, area=(0.9999, 1.0), ratio=(1, 1))
    # Measured: at most 6, at the borders of padded images.
    assert np.abs(trained.numpy().astype(int) - evaluated).max() <= 8
    inside = evaluated[evaluated[..., 2] == 0]
    assert inside[:, :2].min() <= 10
    assert inside[:, :2].max() >= 240


@pytest.mark.parametrize("ratio", RATIOS)
def test_padding_is_gray_and_keeps_proportions(ratio: float) -> None:
    preprocessing = dataclasses.replace(SQUARE, resize="pad")
    found = resize_and_crop(ramp(*sides_of(ratio)), preprocessing).numpy()
    gray = (found == 128).all(axis=-1)
    expected = 1 - min(ratio, 1 / ratio)
    # The filter reaches up to two rows, or columns, into both borders.
    assert expected - 4.01 / 64 <= gray.mean() <= expected + 0.01


@pytest.mark.parametrize("sides", [(40000, 2), (3, 50000)])
def test_borders_of_long_strips_take_limited_memory(sides: tuple[int, int]) -> None:
    from keras_vit.data.decode_and_resize import Stored, padded

    preprocessing = dataclasses.replace(SQUARE, resize="pad")
    image = tf.fill((*sides, 3), tf.constant(255, tf.uint8))
    assert padded(Stored.of(image), preprocessing).pixels.shape.num_elements() < 800e6
    found = resize_and_crop(image, preprocessing).numpy()
    assert np.abs(found.astype(int) - 128).max() <= 2  # a strip much thinner than a pixel


def test_padded_images_of_any_orientation_are_the_same() -> None:
    from keras_vit.data import exif
    from keras_vit.data.decode_and_resize import Stored

    image = tf.constant(ramp(60, 180))
    preprocessing = dataclasses.replace(SQUARE, resize="pad")
    upright = resize_and_crop(image, preprocessing)
    for orientation in range(1, 9):
        turned = next(
            exif.turn(image, back)
            for back in range(1, 9)
            if np.array_equal(exif.turn(exif.turn(image, back), orientation), image)
        )
        found = resize_and_crop(Stored.of(turned, orientation), preprocessing)
        np.testing.assert_allclose(found.numpy(), upright.numpy(), atol=1)


def test_strips_whose_ends_differ_are_told_apart_by_squashing_and_padding_alone() -> None:
    strips = [np.full((48, 240, 3), 100, "uint8") for _ in range(2)]
    strips[1][:, 220:] = 255
    for resize, differs in (("crop", False), ("squash", True), ("pad", True)):
        preprocessing = dataclasses.replace(SQUARE, resize=resize)
        evaluated = [resize_and_crop(strip, preprocessing).numpy() for strip in strips]
        assert (not np.array_equal(*evaluated)) == differs


def test_cut_off_says_how_much_and_which_size_keeps_it() -> None:
    sizes = {"a": (48, 240), "b": (48, 240), "c": (100, 100), "d": (300, 400)}
    assert cut_off(sizes, Preprocessing()) == (
        "2 of 4 images (50%) are more than 4/3 times as wide or as high as the model's input of "
        "224 x 224 pixels (height x width): evaluation and serving see their center, 18% of the "
        "longer side at the median. To see it all, use --image-size 224x1120, --set resize=squash "
        "or --set resize=pad."
    )
    assert "use --image-size 400x224," in cut_off({"a": (178, 100)}, Preprocessing())
    assert cut_off(sizes, Preprocessing(size=(64, 320))).startswith("2 of 4 images (50%)")
    for preprocessing in (Preprocessing(resize="squash"), Preprocessing(resize="pad")):
        assert cut_off(sizes, preprocessing) == ""
    assert cut_off({}, Preprocessing()) == ""
