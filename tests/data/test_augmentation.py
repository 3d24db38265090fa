from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.constants import CROP_AREA
from keras_vit.data import augmentation as module
from keras_vit.data.augmentation import (
    Augmentation,
    augment,
    random_erasing,
    random_flip,
    random_geometry,
    random_resized_crop,
)
from keras_vit.data.decode_and_resize import Stored, padded
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(13, 17), interpolation="nearest")


def coordinates(height: int, width: int) -> np.ndarray:
    """An image whose first two channels tell each pixel's row and column."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, rows * 0], axis=-1).astype("uint8")


@pytest.mark.slow
def test_crop_keeps_area_and_ratio_in_their_ranges() -> None:
    areas, ratios = [], []
    for i in range(200):
        crop = random_resized_crop(
            coordinates(190, 250), [7, i], PREPROCESSING, area=(0.3, 0.5), ratio=(0.8, 1.5)
        ).numpy()
        (top, left), (bottom, right) = crop[0, 0, :2].astype(int), crop[-1, -1, :2].astype(int)
        # 13 x 17 samples at the centers of equal cells
        height, width = (bottom - top) * 13 / 12, (right - left) * 17 / 16
        areas.append(height * width / (190 * 250))
        ratios.append(width / height * 13 / 17)  # relative to the ratio of the size
    # One pixel more or less on each side of the sampled cells is 3 %.
    assert min(areas) > 0.3 * 0.97
    assert max(areas) < 0.5 * 1.03
    assert min(ratios) > 0.8 * 0.97
    assert max(ratios) < 1.5 * 1.03
    assert max(areas) - min(areas) > 0.15
    assert max(ratios) - min(ratios) > 0.5


@pytest.mark.parametrize(
    ("shape", "rows", "columns"),
    [
        ((3, 200), (0, 2), (98, 101)),
        ((50, 200), (0, 49), (66, 132)),
        ((200, 50), (66, 132), (0, 49)),
    ],
)
def test_crop_falls_back_to_the_largest_that_fits(
    shape: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    # No rectangle of these ratios has nine tenths of the area.
    square = dataclasses.replace(PREPROCESSING, size=(200, 200))
    crop = random_resized_crop(coordinates(*shape), [1, 2], square, area=(0.9, 1.0))
    low, high = crop.numpy()[0, 0, :2], crop.numpy()[-1, -1, :2]
    assert (low[0], high[0]) == rows
    assert (low[1], high[1]) == columns


@pytest.mark.slow
def test_crop_has_static_shape_in_a_graph() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
    def crop(image: tf.Tensor) -> tf.Tensor:
        result = random_resized_crop(image, [1, 2], PREPROCESSING)
        assert result.shape == (13, 17, 3)
        return result

    image = coordinates(50, 37)
    np.testing.assert_array_equal(crop(image), random_resized_crop(image, [1, 2], PREPROCESSING))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_crop_takes_tiny_images(shape: tuple[int, int]) -> None:
    for i in range(7):
        assert random_resized_crop(coordinates(*shape), [0, i], PREPROCESSING).shape == (13, 17, 3)


def test_crop_and_flip_follow_from_their_seed() -> None:
    image = coordinates(50, 37)
    crops = [random_resized_crop(image, [3, i], PREPROCESSING).numpy().tobytes() for i in range(5)]
    again = [random_resized_crop(image, [3, i], PREPROCESSING).numpy().tobytes() for i in range(5)]
    assert crops == again
    assert len(set(crops)) == 5


def test_flip_mirrors_half_of_the_images() -> None:
    image = coordinates(5, 7)
    flipped = [random_flip(image, [11, i]).numpy() for i in range(200)]
    mirrored = [bool((f == image[:, ::-1]).all()) for f in flipped]
    kept = [bool((f == image).all()) for f in flipped]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 70 <= sum(mirrored) <= 130  # 100, plus or minus 4 standard deviations


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop_area": (0.5, 0.1)}, r"`crop_area` must be two fractions.*Received: .*\(0.5, 0.1\)"),
        (
            {"crop_area": (0, 1)},
            "`crop_area` must be two fractions with 0 < smallest <= largest <= 1",
        ),
        ({"crop_area": (0.5, 1.1)}, r"`crop_area` must be .*Received: crop_area=\(0.5, 1.1\)"),
        ({"crop_area": (0.3, 0.5, 0.7)}, "`crop_area` must be two fractions"),
        ({"rand_augment_ops": -1}, "`rand_augment_ops` must be a non-negative integer.*=-1"),
        ({"rand_augment_ops": 1.5}, "`rand_augment_ops` must be a non-negative integer.*=1.5"),
        (
            {"rand_augment_magnitude": -0.1},
            "`rand_augment_magnitude` must be a non-negative number",
        ),
        (
            {"rand_augment_std": float("nan")},
            "`rand_augment_std` must be a non-negative number.*=nan",
        ),
        ({"mixup": float("inf")}, "`mixup` must be a non-negative number. Received: mixup=inf"),
        ({"cutmix": -1}, "`cutmix` must be a non-negative number. Received: cutmix=-1"),
        ({"color_jitter": 1.1}, r"`color_jitter` must be in \[0, 1\]. Received: color_jitter=1.1"),
        ({"erasing": -0.1}, r"`erasing` must be in \[0, 1\]. Received: erasing=-0.1"),
        ({"mixing_probability": 2}, r"`mixing_probability` must be in \[0, 1\]. Received: .*=2"),
        ({"mixup": "lots"}, "`mixup` must be a non-negative number. Received: mixup='lots'"),
        ({"erasing": "often"}, r"`erasing` must be in \[0, 1\]. Received: erasing='often'"),
        ({"flip": "maybe"}, "`flip` must be true or false. Received: flip='maybe'"),
        ({"crop_area": "half"}, "`crop_area` must be two fractions.*crop_area='half'"),
        ({"crop_area": ("a", "b")}, "`crop_area` must be two fractions"),
        ({"crop_area": 0.5}, "`crop_area` must be two fractions"),
        ({"repeats": 0}, "`repeats` must be a positive integer. Received: repeats=0"),
    ],
)
def test_augmentation_rejects(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augmentation(**fields)


def test_augmentation_takes_its_limits() -> None:
    full = Augmentation(
        crop_area=[1, 1], color_jitter=1, erasing=1, mixing_probability=0, mixup=0.2, layers=[]
    )
    assert (full.crop_area, full.layers) == ((1.0, 1.0), ())
    assert Augmentation() == Augmentation(crop_area=list(CROP_AREA), layers=[])


@pytest.mark.parametrize(
    ("fields", "mixes", "needs_color"),
    [
        ({}, False, False),
        ({"mixup": 0.2}, True, False),
        ({"cutmix": 1.0}, True, False),
        ({"mixup": 0.2, "mixing_probability": 0.0}, False, False),
        ({"rand_augment_ops": 2}, False, True),
        ({"three_augment": True}, False, True),
        ({"color_jitter": 0.1}, False, True),
        ({"erasing": 0.25, "repeats": 3}, False, False),
    ],
)
def test_augmentation_knows_what_it_needs(fields: dict, mixes: bool, needs_color: bool) -> None:
    augmentation = Augmentation(**fields)
    assert (augmentation.mixes, augmentation.needs_color) == (mixes, needs_color)


NOISE = np.random.default_rng(7).integers(0, 256, (41, 29, 3), "uint8")
PLAIN = Augmentation(crop_area=(0.5, 1.0), flip=False)
EVERYTHING = dataclasses.replace(
    PLAIN,
    flip=True,
    rand_augment_ops=2,
    rand_augment_std=0.5,
    rand_augment_increasing=True,
    three_augment=True,
    color_jitter=0.3,
)


def changed(
    image: np.ndarray, seed: Any, preprocessing: Preprocessing, augmentation: Augmentation
) -> tf.Tensor:
    """The image with a random crop, flip and colors."""
    stored = padded(Stored.of(tf.convert_to_tensor(image)), preprocessing)
    geometry = random_geometry(stored, seed, preprocessing, augmentation)
    return augment(stored, geometry, seed, preprocessing, augmentation)


def test_augment_crops_and_flips_with_seeds_of_their_own() -> None:
    whole = dataclasses.replace(PLAIN, flip=True)
    flipped = []
    for i in range(20):
        crop_seed, flip_seed = tf.unstack(tf.random.split([5, i], 5))[:2]
        crop = random_resized_crop(NOISE, crop_seed, PREPROCESSING, area=(0.5, 1.0))
        expected = random_flip(crop, flip_seed)
        np.testing.assert_array_equal(changed(NOISE, [5, i], PREPROCESSING, whole), expected)
        np.testing.assert_array_equal(changed(NOISE, [5, i], PREPROCESSING, PLAIN), crop)
        flipped.append(bool((crop != expected).numpy().any()))
    assert {True, False} == set(flipped)


@pytest.mark.parametrize(
    "change",
    [
        {"rand_augment_ops": 1, "rand_augment_magnitude": 7.0},
        {"rand_augment_ops": 2, "rand_augment_increasing": True},
        {"rand_augment_ops": 1, "rand_augment_std": 2.0},
        {"three_augment": True},
        {"color_jitter": 0.3},
    ],
)
def test_augment_does_each_thing_that_it_is_told(change: dict) -> None:
    """The crop stays what it was, and something is done to it."""
    augmentation = dataclasses.replace(PLAIN, **change)
    different = 0
    for i in range(12):
        image = changed(NOISE, [5, i], PREPROCESSING, augmentation)
        different += bool((image != changed(NOISE, [5, i], PREPROCESSING, PLAIN)).numpy().any())
        assert (image.shape, image.dtype) == ((13, 17, 3), tf.uint8)
    assert different >= 9  # RandAugment's operations include nothing


def test_augment_hands_every_number_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def record(image: tf.Tensor, seed: tf.Tensor, **options: object) -> tf.Tensor:
        seen.update(options)
        return image

    monkeypatch.setattr(module, "rand_augment", record)
    monkeypatch.setattr(module, "color_jitter", record)
    numbers = {
        "rand_augment_ops": 3,
        "rand_augment_magnitude": 5.0,
        "rand_augment_std": 0.7,
        "rand_augment_increasing": True,
        "color_jitter": 0.2,
    }
    changed(NOISE, [1, 2], PREPROCESSING, dataclasses.replace(PLAIN, **numbers))
    assert seen == {
        "num_ops": 3,
        "magnitude": 5.0,
        "magnitude_std": 0.7,
        "increasing": True,
        "strength": 0.2,
    }


@pytest.mark.slow
def test_augment_follows_from_its_seed_also_inside_tf_data() -> None:
    def of_seed(i: tf.Tensor) -> tf.Tensor:
        return changed(tf.constant(NOISE), tf.stack([i, 3]), PREPROCESSING, EVERYTHING)

    dataset = tf.data.Dataset.range(25).map(of_seed, tf.data.AUTOTUNE)
    assert dataset.element_spec == tf.TensorSpec((13, 17, 3), tf.uint8)
    images = list(dataset.as_numpy_iterator())
    for i, image in enumerate(images):
        np.testing.assert_array_equal(image, of_seed(tf.constant(i, tf.int64)))
    assert len({image.tobytes() for image in images}) == 25


def test_augment_knows_red_from_blue() -> None:
    """The order of the channels changes nothing else, though luma weighs them differently."""
    bgr = dataclasses.replace(PREPROCESSING, channels="bgr")
    for i in range(12):
        expected = changed(NOISE, [3, i], PREPROCESSING, EVERYTHING)
        actual = changed(NOISE[..., ::-1], [3, i], bgr, EVERYTHING)
        np.testing.assert_array_equal(actual, expected[..., ::-1])


def test_augment_takes_one_channel_where_no_color_is_needed() -> None:
    gray = Preprocessing(size=(13, 17), channels="grayscale")
    image = changed(NOISE[..., :1], [3, 5], gray, dataclasses.replace(PLAIN, flip=True))
    assert image.shape == (13, 17, 1)


@pytest.mark.slow
def test_erasing_replaces_rectangles_by_noise() -> None:
    h, w = 83, 97
    image = tf.fill((h, w, 2), 9.0)
    areas, ratios, noise = [], [], []
    for i in range(200):
        erased = random_erasing(image, [5, i], probability=1.0).numpy()
        changed = (erased != 9).all(axis=-1)
        np.testing.assert_array_equal(changed, (erased != 9).any(axis=-1))
        rows, columns = changed.any(axis=1), changed.any(axis=0)
        np.testing.assert_array_equal(changed, rows[:, None] & columns)
        for side in (rows, columns):
            assert np.abs(np.diff(np.pad(side.astype(int), 1))).sum() == 2  # without a gap
        height, width = rows.sum(), columns.sum()
        areas.append(height * width / (h * w))
        if height < h and width < w:  # else it was cut to the image's side
            ratios.append(height / width)
        noise.append(erased[changed])
    # The rectangle's sides are rounded to pixels: 7 % of the shortest one, of 7 pixels.
    assert 0.02 * 0.9 < min(areas) < 0.04
    assert 0.3 < max(areas) < 1 / 3 * 1.05
    assert abs(np.mean(areas) - (0.02 + 1 / 3) / 2) < 0.03
    assert 0.3 * 0.9 < min(ratios) < 0.4
    assert 2.5 < max(ratios) < 10 / 3 * 1.1
    assert abs(np.mean(np.log(ratios))) < 0.2  # as many tall ones as wide ones
    noise = np.concatenate(noise)
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 1) < 0.01
    assert len(np.unique(noise)) > 0.9 * len(noise)  # in every pixel, not one for all


@pytest.mark.slow
def test_erasing_may_happen_anywhere() -> None:
    image = tf.fill((11, 7, 1), 9.0)
    erased = [random_erasing(image, [3, i], probability=1.0) != 9 for i in range(300)]
    rate = np.mean(erased, axis=0)[..., 0]
    assert rate.min() > 0  # a corner seldom: 1 %
    assert rate[5, 3] > 0.15 > rate[0, 0]
    # 0.3 at most, with a standard deviation of 0.03
    np.testing.assert_allclose(rate, rate[::-1, ::-1], atol=4 * 0.03)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_erasing_happens_with_its_probability(probability: float) -> None:
    image = tf.fill((11, 13, 3), 9.0)
    count = sum(
        bool((random_erasing(image, [3, i], probability=probability) != 9).numpy().any())
        for i in range(200)
    )
    assert abs(count - 200 * probability) <= 4 * np.sqrt(200 * probability * (1 - probability))


@pytest.mark.slow
def test_erasing_follows_from_its_seed_also_inside_tf_data() -> None:
    def erased(i: tf.Tensor) -> tf.Tensor:
        return random_erasing(tf.zeros((13, 17, 3)), tf.stack([i, 3]), probability=0.6)

    dataset = tf.data.Dataset.range(15).map(erased)
    assert dataset.element_spec == tf.TensorSpec((13, 17, 3), tf.float32)
    images = list(dataset.as_numpy_iterator())
    for i, image in enumerate(images):
        np.testing.assert_array_equal(image, erased(tf.constant(i, tf.int64)))
    assert len({image.tobytes() for image in images}) > 5
