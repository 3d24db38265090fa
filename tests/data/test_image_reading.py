from __future__ import annotations

import dataclasses
import io
import zlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.constants import MAX_PIXELS
from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.data.image_reading import REFUSED, Limits
from keras_vit.preprocessing import Preprocessing
from tests.data.readers import reader
from tests.data.test_image_headers import ANIMATION, FILES, PHOTO, encoded

pytestmark = pytest.mark.tensorflow

PREPROCESSING = Preprocessing(size=(11, 17))
DEEP = Image.fromarray(np.random.default_rng(4).integers(0, 65535, (37, 53), np.uint16))
ROTATED = Image.Exif()
ROTATED[0x0112] = 6
GOOD = {
    **{f"{form} {i}": f for form in FILES if form != "unknown" for i, f in enumerate(FILES[form])},
    "gray jpeg": encoded("JPEG", PHOTO.convert("L")),
    "cmyk jpeg": encoded("JPEG", PHOTO.convert("CMYK")),
    "rotated jpeg": encoded("JPEG", exif=ROTATED),
    "alpha png": encoded("PNG", PHOTO.convert("RGBA")),
    "alpha webp": encoded("WEBP", PHOTO.convert("RGBA")),
    "palette bmp": encoded("BMP", PHOTO.quantize(100)),
    "16-bit png": encoded("PNG", DEEP),
    "long jpeg": encoded("JPEG") + bytes(3000),
}
LIMITS = Limits(max_bytes=20_000, max_pixels=5000)
LARGE = b"The image has 10000 x 10000 pixels, more than the limit of 64218112"
WIDE = Image.new("RGB", (5001, 1))
JPEG, PNG, GIF, BMP, WEBP = (f"The image is {kind}" for kind in REFUSED)
BAD = {
    "": "The image is empty",
    "text": "The image is not a JPEG, PNG, GIF, BMP or WebP",
    "tiff": "The image is not a JPEG, PNG, GIF, BMP or WebP",
    "half jpeg": "The image is damaged",
    "half png": "The image is damaged",
    "half gif": "The image is damaged",
    "unmarked jpeg": JPEG,
    "headless png": PNG,
    "moving webp": WEBP,
    "two-colored bmp": BMP,
    "small gif": GIF,
    "shifted gif": GIF,
    "long png": "The image has more than 20000 bytes",
    **{
        f"wide {form}": "The image has 1 x 5001 pixels, more than the limit of 5000"
        for form in FILES
        if form != "unknown"
    },
    "wide frame": "The image has 32768 x 32768 pixels, more than the limit of 5000",
    "endless jpeg": "The image is a JPEG with more than 100 scans",
}


def bad(name: str) -> bytes:
    kind, _, form = name.rpartition(" ")
    match kind:
        case "half":
            whole = FILES[form][0]
            return whole[: len(whole) // 2]
        case "moving":
            return encoded("WEBP", save_all=True, append_images=[PHOTO.rotate(90)])
        case "two-colored":
            return encoded("BMP", PHOTO.convert("1"))
        case "small":  # a frame of 37 x 53 pixels on a larger screen
            gif = bytearray(FILES["gif"][0])
            gif[6:10] = (60).to_bytes(2, "little") + (40).to_bytes(2, "little")
            return bytes(gif)
        case "shifted":  # its frame begins at column 2
            gif = bytearray(FILES["gif"][0])
            gif[gif.index(b"\x2c\0\0\0\0") + 1] = 2
            return bytes(gif)
        case "unmarked":  # four channels, of which nothing says what they mean
            cmyk = GOOD["cmyk jpeg"]
            start = cmyk.index(b"\xff\xee\0\x0eAdobe")
            return cmyk[:start] + cmyk[start + 16 :]
        case "headless":  # a chunk with a small size before the one that counts
            png = encoded("PNG", Image.new("RGB", (300, 500)))
            size = b"noSe" + bytes((0, 0, 0, 5)) * 2
            size += zlib.crc32(size).to_bytes(4, "big")
            return png[:8] + b"\0\0\0\x08" + size + png[8:]
        case "long":
            return encoded("PNG") + bytes(20_000)
        case "endless":  # the last scan over and over
            whole = encoded("JPEG", Image.new("RGB", (8, 8)), progressive=True)
            scan = whole[whole.rindex(b"\xff\xda") : -2]
            return whole[:-2] + 100 * scan + whole[-2:]
        case "wide" if form != "frame":
            return encoded(form.upper(), WIDE)
        case "wide":  # a small screen with a large frame on it
            gif = bytearray(ANIMATION)
            place = gif.index(b"\x2c\0\0\0\0")
            gif[place + 5 : place + 9] = (2**15).to_bytes(2, "little") * 2
            return bytes(gif)
    return encoded("TIFF") if form == "tiff" else form.encode()


def read(
    *images: bytes, limits: Limits = LIMITS, preprocessing: Preprocessing = PREPROCESSING
) -> Any:
    read_batch = reader(preprocessing, limits)
    return [part.numpy() for part in read_batch(tf.constant(images, tf.string))]


def test_every_format_is_read_as_in_training() -> None:
    found, ok, message = read(*GOOD.values())
    expected = [
        resize_and_crop(decode(image, PREPROCESSING), PREPROCESSING) for image in GOOD.values()
    ]
    np.testing.assert_array_equal(found, expected)
    assert ok.all()
    assert set(message) == {b""}


@pytest.mark.slow
def test_photographs_are_read_upright() -> None:
    told = GOOD["rotated jpeg"]
    with Image.open(io.BytesIO(told)) as image:
        expected = resize_and_crop(np.asarray(ImageOps.exif_transpose(image)), PREPROCESSING)
    np.testing.assert_array_equal(read(told)[0], [expected])
    earlier = dataclasses.replace(PREPROCESSING, exif_orientation=False)
    np.testing.assert_array_equal(read(told, preprocessing=earlier)[0], read(GOOD["jpeg 0"])[0])


def test_gray_models_read_gray_pixels() -> None:
    preprocessing = Preprocessing(size=(11, 17), channels="grayscale")
    found, ok, _ = read(GOOD["jpeg 0"], preprocessing=preprocessing)
    assert (found.shape, ok.tolist()) == ((1, 11, 17, 1), [True])


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    """What is read of two good images without a bad one between them."""
    return read(GOOD["png 0"], GOOD["jpeg 0"])[0]


@pytest.mark.parametrize(("name", "said"), BAD.items())
def test_a_bad_image_says_why_and_costs_its_neighbors_nothing(
    name: str, said: str, alone: np.ndarray
) -> None:
    found, ok, message = read(GOOD["png 0"], bad(name), GOOD["jpeg 0"])
    assert ok.tolist() == [True, False, True]
    assert [text.decode() for text in message] == ["", said, ""]
    np.testing.assert_array_equal(found[[0, 2]], alone)
    assert not found[1].any()


def test_batches_of_bad_images_and_of_none() -> None:
    found, ok, _ = read(b"", b"text")
    assert (found.shape, ok.tolist()) == ((2, 11, 17, 3), [False, False])
    assert [part.shape for part in read()] == [(0, 11, 17, 3), (0,), (0,)]


@pytest.mark.slow
def test_limits_are_the_largest_that_is_read() -> None:
    image = encoded("PNG")
    exact = Limits(max_bytes=len(image), max_pixels=37 * 53)
    assert read(image, limits=exact)[1] == [True]
    for limits in (Limits(len(image) - 1, 37 * 53), Limits(len(image), 37 * 53 - 1)):
        assert read(image, limits=limits)[1] == [False]


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"`max_pixels` must be .*Received: max_pixels=0"):
        Limits(max_pixels=0)


def test_a_bomb_is_not_decoded() -> None:
    """A file of 30 kB that would be 300 MB."""
    content = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(content, "PNG")
    assert len(content.getvalue()) < 30_000
    assert MAX_PIXELS == 64_218_112
    _, ok, message = read(content.getvalue(), limits=Limits())
    assert (ok.tolist(), message[0]) == ([False], LARGE)
