"""Masks and boxes lie where the image's shapes lie, after every crop, flip and resizing."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_vit.data import Augmentation, resize_and_crop
from keras_vit.data.augmentation import augment, random_geometry, ratio_for_crop
from keras_vit.data.decode_and_resize import decode_as_stored, padded, ratio_for_resizing
from keras_vit.data.geometry import (
    Geometry,
    centered_geometry,
    cut_boxes,
    cut_mask,
    uncut_boxes,
    uncut_mask,
)
from keras_vit.preprocessing import Preprocessing

RESIZES = ("crop", "squash", "squash_crop", "pad")
SIDES = ((60, 90), (97, 41))
# Each way of resizing with one size, and slowly with the other.
PAIRS = [
    *((resize, SIDES[index % 2]) for index, resize in enumerate(RESIZES)),
    *(
        pytest.param(resize, SIDES[1 - index % 2], marks=pytest.mark.slow)
        for index, resize in enumerate(RESIZES)
    ),
]
OUTSIDE = 255
# A bright rectangle, rows 30% to 65% and columns 40% to 80% of the image.
PART = np.array([0.3, 0.4, 0.65, 0.8])


def drawn(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A mask of the rectangle, and its box."""
    box = (PART * [height, width, height, width]).round().astype(int)
    mask = np.zeros((height, width), np.uint8)
    mask[box[0] : box[2], box[1] : box[3]] = 1
    return mask, box.astype("float32")


def stored_file(mask: np.ndarray, orientation: int, kind: str) -> bytes:
    """An image of the mask, stored so that `orientation` turns it upright."""
    turned = {
        **{1: lambda m: m, 2: np.fliplr, 3: lambda m: np.rot90(m, 2), 4: np.flipud},
        **{5: np.transpose, 6: np.rot90, 7: lambda m: np.rot90(m, 2).T},
        8: lambda m: np.rot90(m, -1),
    }[orientation](mask)
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    pixels = np.repeat(turned[..., None] * 255, 3, axis=-1).astype(np.uint8)
    PIL.Image.fromarray(pixels).save(file, kind, exif=exif.tobytes(), **{"quality": 95})
    return file.getvalue()


def check(image: tf.Tensor, geometry: Geometry, mask: np.ndarray, box: np.ndarray) -> None:
    """The image is bright where its mask is 1, but for a pixel, and its box ends there."""
    size = tuple(image.shape[:2])
    found = cut_mask(tf.constant(mask), geometry, size, OUTSIDE).numpy()
    level = image.numpy()[..., 0].astype(int)
    inner = np.ones_like(found, bool)  # pixels whose neighbors have the same class
    for axis in (0, 1):
        for step in (-1, 1):
            same = np.roll(found, step, axis) == found
            edge = [slice(None)] * 2
            edge[axis] = 0 if step == 1 else -1
            same[tuple(edge)] = True
            inner &= same
    if (found == OUTSIDE).any():  # the gray of a border
        assert np.abs(level[inner & (found == OUTSIDE)] - 128).max() <= 40
    assert (level[inner & (found == 1)] > 128).all()
    assert (level[inner & (found == 0)] < 128).all()
    boxes, inside = cut_boxes(tf.constant(box[None]), geometry, size)
    if not (found == 1).any():
        assert not inside.numpy()[0]
        return
    rows, columns = (np.flatnonzero((found == 1).any(axis=axis)) for axis in (1, 0))
    ends = [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]
    # Nearest pixels: an edge at most half a pixel from that of the mask.
    assert np.abs(boxes.numpy()[0] - ends).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("resize", "sides"), PAIRS)
def test_targets_follow_every_random_crop_and_flip(
    resize: str, sides: tuple[int, int], orientation: int
) -> None:
    preprocessing = Preprocessing(size=(32, 48), resize=resize)
    augmentation = Augmentation(crop_area=(0.3, 1.0))
    mask, box = drawn(*sides)
    encoded = tf.constant(stored_file(mask, orientation, "PNG"))
    for seed in range(6):
        key = tf.constant([seed, 3])
        stored = padded(decode_as_stored(encoded, preprocessing), preprocessing)
        geometry = random_geometry(stored, key, preprocessing, augmentation)
        image = augment(stored, geometry, key, preprocessing, augmentation)
        check(image, geometry, mask, box)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("resize", "sides"), PAIRS)
def test_targets_follow_the_resizing_of_evaluation(
    resize: str, sides: tuple[int, int], orientation: int
) -> None:
    preprocessing = Preprocessing(size=(32, 48), resize=resize, crop_fraction=0.8)
    mask, box = drawn(*sides)
    encoded = tf.constant(stored_file(mask, orientation, "PNG"))
    image = resize_and_crop(decode_as_stored(encoded, preprocessing), preprocessing)
    check(image, centered_geometry(tf.constant(sides), preprocessing), mask, box)


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_targets_follow_a_jpeg_that_is_decoded_at_a_part_of_its_size(
    orientation: int, resize: str
) -> None:
    preprocessing = Preprocessing(size=(32, 48), resize=resize, dct_scaling=True)
    augmentation = Augmentation(crop_area=(0.5, 1.0))
    mask, box = drawn(1203, 1405)
    encoded = tf.constant(stored_file(mask, orientation, "JPEG"))
    for seed in range(3):
        key = tf.constant([seed, 3])
        ratio = ratio_for_crop(key, preprocessing, augmentation)
        stored = padded(decode_as_stored(encoded, preprocessing, ratio), preprocessing)
        assert int(stored.ratio) > 1
        geometry = random_geometry(stored, key, preprocessing, augmentation)
        image = augment(stored, geometry, key, preprocessing, augmentation)
        check(image, geometry, mask, box)
    stored = decode_as_stored(encoded, preprocessing, ratio_for_resizing(preprocessing))
    assert int(stored.ratio) > 1
    image = resize_and_crop(stored, preprocessing)
    check(image, centered_geometry(tf.constant(mask.shape), preprocessing), mask, box)


def test_boxes_whose_center_is_not_seen_are_not_inside() -> None:
    geometry = Geometry(tf.constant([0, 10]), tf.constant([20, 20]), tf.constant(True))
    boxes = tf.constant([[2.0, 6.0, 6.0, 16.0], [2.0, 0.0, 6.0, 12.0], [0.0, 40.0, 5.0, 50.0]])
    found, inside = cut_boxes(boxes, geometry, (40, 40))
    assert inside.numpy().tolist() == [True, False, False]
    # Twice as large, from column 10 on, and flipped.
    np.testing.assert_allclose(found[0], [4.0, 28.0, 12.0, 40.0])


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("sides", [(47, 90), (90, 47), (64, 64)])
def test_outputs_return_to_the_pixels_of_the_image(resize: str, sides: tuple[int, int]) -> None:
    mask, box = drawn(*sides)
    preprocessing = Preprocessing(size=(96, 128), resize=resize)
    geometry = centered_geometry(tf.constant(sides), preprocessing)
    seen = cut_mask(tf.constant(mask), geometry, preprocessing.size, OUTSIDE).numpy()
    found = uncut_mask(seen, geometry, sides, OUTSIDE)
    if resize in ("squash", "pad"):
        np.testing.assert_array_equal(found, mask)  # larger than the image, so nothing is lost
    else:
        inside = found != OUTSIDE
        assert 0.3 < inside.mean() <= 1
        np.testing.assert_array_equal(found[inside], mask[inside])
    moved, _ = cut_boxes(tf.constant(box[np.newaxis]), geometry, preprocessing.size)
    if resize in ("squash", "pad"):
        np.testing.assert_allclose(
            uncut_boxes(moved.numpy(), geometry, preprocessing.size)[0], box, atol=1e-4
        )
