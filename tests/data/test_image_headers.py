from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.data import image_headers
from keras_vit.data.image_headers import FORMATS

pytestmark = pytest.mark.tensorflow

PHOTO = Image.fromarray(np.random.default_rng(3).integers(0, 255, (37, 53, 3), np.uint8))


def encoded(form: str, image: Image.Image = PHOTO, **settings: object) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **settings)
    return content.getvalue()


ANIMATION = encoded("GIF", save_all=True, append_images=[PHOTO.rotate(90), PHOTO.rotate(180)])
FILES = {
    "jpeg": [encoded("JPEG"), encoded("JPEG", progressive=True)],
    "png": [encoded("PNG"), encoded("PNG", PHOTO.convert("P"))],
    "gif": [encoded("GIF"), ANIMATION],
    "bmp": [encoded("BMP")],
    "webp": [
        encoded("WEBP"),
        encoded("WEBP", lossless=True),
        encoded("WEBP", PHOTO.convert("RGBA"), lossless=True, exif=b"Exif\0\0"),
    ],
    "unknown": [b"", b"text", encoded("TIFF"), b"RIFF\0\0\0\0WAVE", b"\x89PNG"],
}


@pytest.mark.parametrize("form", FILES)
def test_head_tells_format_and_sides(form: str) -> None:
    sides = [0, 0] if form in ("jpeg", "unknown") else [37, 53]
    for content in FILES[form]:
        found = image_headers.head(tf.constant(content))
        assert (FORMATS[found.format], found.sides.numpy().tolist()) == (form, sides)
        assert not found.refused


def test_sides_of_a_bmp_from_the_top_down() -> None:
    bmp = bytearray(encoded("BMP"))
    bmp[22:26] = (-37).to_bytes(4, "little", signed=True)
    assert image_headers.head(tf.constant(bytes(bmp))).sides.numpy().tolist() == [37, 53]


def test_area_of_the_largest_sides_does_not_overflow() -> None:
    png = bytearray(encoded("PNG"))
    png[16:24] = b"\xff\xff\xff\xff" * 2
    assert np.prod(image_headers.head(tf.constant(bytes(png))).sides.numpy()) == 2**62


@pytest.mark.parametrize(
    ("form", "place", "content"),
    [
        ("png", 12, b"tEXt"),
        ("bmp", 28, b"\x04"),
        ("bmp", 30, b"\x01"),
        ("bmp", 14, b"\x0c"),
    ],
)
def test_kinds_that_decoders_read_wrongly_are_refused(
    form: str, place: int, content: bytes
) -> None:
    changed = bytearray(FILES[form][0])
    changed[place : place + len(content)] = content
    assert image_headers.head(tf.constant(bytes(changed))).refused


@pytest.mark.parametrize("gif", FILES["gif"], ids=["one frame", "three frames"])
def test_first_frame_is_the_image_that_is_shown_first(gif: bytes) -> None:
    frame, size, corner = image_headers.first_frame(tf.constant(gif))
    with Image.open(io.BytesIO(frame.numpy())) as cut, Image.open(io.BytesIO(gif)) as whole:
        assert cut.n_frames == 1
        np.testing.assert_array_equal(cut.convert("RGB"), whole.convert("RGB"))
    assert (size.numpy().tolist(), corner.numpy().tolist()) == ([37, 53], [0, 0])
    assert len(frame.numpy()) <= len(gif)


def test_first_frame_of_an_animation_is_a_part_of_it() -> None:
    assert len(image_headers.first_frame(tf.constant(ANIMATION))[0].numpy()) < len(ANIMATION) / 2


@pytest.mark.parametrize("length", [6, 10, 13, 30, 800, 1000])
def test_a_gif_that_ends_early_has_no_frame(length: int) -> None:
    frame, size, _ = image_headers.first_frame(tf.constant(ANIMATION[:length]))
    assert (frame.numpy(), size.numpy().tolist()) == (b"", [0, 0])


@pytest.mark.slow
def test_a_gif_of_endless_extensions_ends() -> None:
    head = ANIMATION[:13].replace(ANIMATION[10:11], b"\0")
    comments = head + (b"\x21\xfe\x01a\x00" * 200_000)
    traced = tf.function(image_headers.first_frame, autograph=False)
    assert traced(tf.constant(comments))[0].numpy() == b""


def test_scans_are_those_of_the_file() -> None:
    once, often = FILES["jpeg"]
    for file, least in ((once, 1), (often, 6)):
        number = file.count(b"\xff\xda")
        assert number >= least
        assert image_headers.has_more_scans(tf.constant(file), number - 1)
        assert not image_headers.has_more_scans(tf.constant(file), number)
        film = b"\xff\xda" * 500 + np.random.default_rng(3).bytes(100_000)
        assert not image_headers.has_more_scans(tf.constant(file + film), number)


def test_coefficients_of_one_channel_are_not_stored() -> None:
    for mode in ("L", "RGB"):
        for progressive in (False, True):
            file = encoded("JPEG", PHOTO.convert(mode), progressive=progressive)
            found = image_headers.keeps_coefficients(tf.constant(file), len(mode))
            assert found == progressive
