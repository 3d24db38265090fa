"""Large JPEGs that are decoded at 1/2 or 1/4."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
import tensorflow as tf

from keras_vit.data import Augmentation, Examples, audit, training_dataset
from keras_vit.data.augmentation import ratio_for_crop
from keras_vit.data.decode_and_resize import (
    Stored,
    decode_as_stored,
    decode_resized,
    ratio_for_resizing,
    resize_and_crop,
)
from keras_vit.data.image_reading import Limits, decode_checked, read_each
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(30, 40), crop_fraction=1.0)
EXACT = dataclasses.replace(PREPROCESSING, dct_scaling=False)
PHOTO = PIL.Image.fromarray(sklearn.datasets.load_sample_images().images[1])


def jpeg(width: int, height: int, orientation: int = 1, **options: object) -> bytes:
    exif, file = PIL.Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    PHOTO.resize((width, height)).save(file, "JPEG", quality=90, exif=exif, **options)
    return file.getvalue()


def ratio_of(encoded: bytes, preprocessing: Preprocessing = PREPROCESSING) -> int:
    chosen = ratio_for_resizing(preprocessing)
    stored = decode_as_stored(tf.constant(encoded), preprocessing, chosen)
    ratio = int(stored.ratio)
    height, width = stored.sides.numpy()
    assert stored.pixels.shape[:2] == (-(-height // ratio), -(-width // ratio))
    return ratio


@pytest.mark.parametrize(
    ("sides", "expected"),
    [((239, 900), 1), ((240, 240), 2), ((959, 1200), 2), ((961, 1200), 4), ((1201, 1201), 4)],
)
def test_half_size_from_6_and_quarter_size_from_24_times_the_resized_side(
    sides: tuple[int, int], expected: int
) -> None:
    for width, height in (sides, sides[::-1]):
        assert ratio_of(jpeg(width, height)) == expected
        assert ratio_of(jpeg(width, height), EXACT) == 1


def test_crop_that_is_cut_out_of_a_larger_image_counts_as_that() -> None:
    cropped = dataclasses.replace(PREPROCESSING, crop_fraction=0.5)
    assert (ratio_of(jpeg(961, 961)), ratio_of(jpeg(961, 961), cropped)) == (4, 2)
    squashed = dataclasses.replace(cropped, resize="squash")
    assert ratio_of(jpeg(961, 961), squashed) == 4


@pytest.mark.parametrize("change", [{"antialias": False}, {"interpolation": "nearest"}])
def test_filters_that_do_not_antialias_see_every_pixel(change: dict) -> None:
    assert ratio_of(jpeg(900, 900), dataclasses.replace(PREPROCESSING, **change)) == 1


# Differences in gray levels, of the pixels and on average, at 1/2 and 1/4: measured at most 4 and
# 0.20, 2 and 0.11 on this photograph with saturated red; 12 megapixels: docs/decisions/0017.
@pytest.mark.parametrize(
    ("width", "height", "limit", "mean"), [(363, 271, 6, 0.3), (1087, 727, 3, 0.2)]
)
@pytest.mark.parametrize("resize", ["crop", "squash", "squash_crop"])
@pytest.mark.parametrize("channels", ["rgb", "bgr", "grayscale"])
def test_pixels_are_those_of_the_whole_image(
    width: int, height: int, limit: int, mean: float, resize: str, channels: str
) -> None:
    preprocessing = dataclasses.replace(
        PREPROCESSING, size=(30, 30), resize=resize, channels=channels, mean=0.5, std=0.5
    )
    exact = dataclasses.replace(preprocessing, dct_scaling=False)
    # The last row and column of blocks are incomplete, and so is the last pixel at 1/2 and 1/4.
    for orientation in (1, 6):
        file = tf.constant(jpeg(width, height, orientation))
        found, expected = (
            decode_resized(file, each).numpy().astype(int) for each in (preprocessing, exact)
        )
        assert found.shape == (30, 30, preprocessing.num_channels)
        difference = np.abs(found - expected)
        # At the border a part of a pixel counts as a whole one: measured at most 10.
        assert difference.max() <= 14
        assert 0 < difference[1:-1, 1:-1].max() <= limit
        assert difference.mean() <= mean


def test_pixels_that_are_means_are_as_sharp_as_the_whole_image() -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, size=(40, 40))
    waves = np.sin(np.arange(240) * 2 * np.pi / 24)  # four resized pixels long
    image = (127.5 + 60 * waves[:, None] + 60 * waves)[..., None] * np.ones(3, np.float32)
    means = image.reshape(60, 4, 60, 4, 3).mean((1, 3))
    stored = Stored(tf.constant(means, tf.float32), tf.constant([240, 240]), 4, 1)
    found, expected = (
        resize_and_crop(each, preprocessing).numpy().astype(int)
        for each in (stored, tf.constant(image, tf.float32))
    )
    difference = np.abs(found - expected)
    # Measured 1 and 0.35, without sharpening 3 and 1.6.
    assert difference[2:-2, 2:-2].max() <= 2
    assert difference.mean() <= 0.6


def test_every_reader_decodes_alike() -> None:
    file = tf.constant(jpeg(1281, 971, 3))
    expected = decode_resized(file, PREPROCESSING)
    np.testing.assert_array_equal(decode_checked(file, PREPROCESSING), expected)
    read = read_each(file[tf.newaxis], PREPROCESSING, Limits())
    np.testing.assert_array_equal(read.pixels[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("orientation", [1, 6])
def test_training_cuts_the_same_part_out_of_a_smaller_image(orientation: int) -> None:
    preprocessing = Preprocessing(size=(20, 20))
    augmentation = Augmentation(crop_area=(0.3, 1.0))
    file = jpeg(961, 641, orientation)  # crops of 18 to 32 pixels for one
    examples = Examples(
        names=("a.jpg",), targets=np.array([0]), class_names=("a", "b"), source="", encoded=(file,)
    )
    found, expected = (
        np.concatenate(
            [x.numpy() for x, _ in training_dataset(examples, each, augmentation, **how)]
        )
        for each in (preprocessing, dataclasses.replace(preprocessing, dct_scaling=False))
        for how in ({"batch_size": 1, "epochs": 8},)
    )
    differences = np.abs(found - expected) * 127.5  # of gray levels
    # Measured 2.8 on average; another part of the image differs by 20 and more.
    assert 0 < differences.mean() < 5
    ratios = {
        int(decode_as_stored(tf.constant(file), preprocessing, chosen).ratio)
        for seed in range(4)
        for chosen in [ratio_for_crop(tf.constant([seed, 3]), preprocessing, augmentation)]
    }
    assert ratios == {4}


def test_damaged_large_jpeg_is_refused_alone() -> None:
    good = jpeg(641, 431)
    read = read_each(tf.constant([good, good[:3000], good]), PREPROCESSING, Limits())
    assert read.ok.numpy().tolist() == [True, False, True]


def gray_jpeg(width: int, height: int) -> bytes:
    """A JPEG of gray 128, in whose blocks of 8 x 8 pixels all coefficients are zero: 14 bits."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 8), (128, 128, 128)).save(file, "JPEG", subsampling=0)
    head = bytearray(file.getvalue())
    frame, scan = head.index(b"\xff\xc0"), head.index(b"\xff\xda")
    head[frame + 5 : frame + 9] = height.to_bytes(2) + width.to_bytes(2)
    four_blocks = int("00101000000000" * 4, 2).to_bytes(7)
    blocks = -(-width // 8) * -(-height // 8)
    return bytes(head[: scan + 14]) + four_blocks * (blocks // 4 + 1) + b"\xff\xd9"


PHONE = (12000, 9000)  # 108 megapixels
OTHERS = {
    "large": {},
    "exact": {"dct_scaling": False},
    "sharp": {"antialias": False},
    "nearest": {"interpolation": "nearest"},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_ratio_of_photographs_of_108_megapixels(change: dict) -> None:
    preprocessing = dataclasses.replace(Preprocessing(size=(30, 40)), **change)
    for width, height, floor in ((*PHONE, 2), (16320, 12240, 2), (20000, 15000, 4)):
        chosen = ratio_for_resizing(preprocessing)(tf.constant([height, width]), tf.constant(1))
        assert int(chosen) == (floor if change else 4)


@pytest.mark.parametrize(
    "kind",
    ["large", "exact", *(pytest.param(k, marks=pytest.mark.slow) for k in ("sharp", "nearest"))],
)
def test_photographs_of_108_megapixels_are_read_at_a_smaller_size(kind: str) -> None:
    preprocessing = dataclasses.replace(Preprocessing(size=(30, 40)), **OTHERS[kind])
    file = tf.constant(gray_jpeg(*PHONE))
    read = read_each(file[tf.newaxis], preprocessing, Limits())
    assert (read.ok.numpy().tolist(), read.message[0].numpy()) == ([True], b"")
    for pixels in (read.pixels[0], decode_checked(file, preprocessing)):
        assert np.unique(pixels) == [128]


@pytest.mark.slow
def test_photographs_of_108_megapixels_are_trained_on() -> None:
    examples = Examples(
        names=("a.jpg",),
        targets=np.array([0]),
        class_names=("a", "b"),
        source="",
        encoded=(gray_jpeg(*PHONE),),
    )
    found = audit(examples, progress=False)
    assert (found.bad, found.sizes) == ((), {"a.jpg": PHONE[::-1]})
    exact = Preprocessing(size=(20, 20), dct_scaling=False)
    (batch,) = training_dataset(examples, exact, Augmentation(), batch_size=1, epochs=1)
    np.testing.assert_allclose(batch[0], exact.scale(np.float32(128)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["progressive", "arithmetic", "one color a scan", "gigapixels"])
def test_limit_counts_the_pixels_that_the_decoder_keeps(kind: str) -> None:
    file = gray_jpeg(*PHONE)
    start = file.index(b"\xff\xc0")
    if kind == "gigapixels":
        file = gray_jpeg(8, 8).replace(b"\0\x08\0\x08", b"\xff\x00\xff\x00")
    elif kind == "one color a scan":
        file = file[:-2] + b"\xff\xda\0\x08\x01" + file[-2:]
    else:
        marker = b"\xff\xc2" if kind == "progressive" else b"\xff\xca"
        file = file[:start] + marker + file[start + 2 :]
    read = read_each(tf.constant([file]), PREPROCESSING, Limits())
    size = "65280 x 65280" if kind == "gigapixels" else "9000 x 12000"
    expected = f"The image has {size} pixels, more than the limit of 64218112"
    assert (read.ok.numpy().tolist(), read.message[0].numpy().decode()) == ([False], expected)


def test_limits_count_decoded_pixels() -> None:
    file = tf.constant([gray_jpeg(961, 961)])  # decoded at 1/4
    for limit, ok in ((241 * 241, True), (241 * 241 - 1, False)):
        assert read_each(file, PREPROCESSING, Limits(max_pixels=limit)).ok.numpy() == [ok]
