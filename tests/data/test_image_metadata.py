from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, PngImagePlugin

from keras_vit.data import exif
from keras_vit.data.decode_and_resize import decode
from keras_vit.data.image_metadata import without_metadata
from keras_vit.preprocessing import Preprocessing
from tests.data.image_kinds import KINDS, PHOTO, save

pytestmark = pytest.mark.tensorflow

MARK = b"PRIVATE-MARK"


def marked(form: str, orientation: int = 1, image: Image.Image = PHOTO) -> bytes:
    """An image with the mark in every kind of metadata that Pillow writes, and behind its end."""
    told = Image.Exif()
    told[0x010E], told[0x0112] = MARK.decode(), orientation
    settings: dict[str, object] = {"exif": told, "xmp": MARK, "icc_profile": MARK}
    if form == "PNG":
        settings["pnginfo"] = PngImagePlugin.PngInfo()
        settings["pnginfo"].add_text("Comment", MARK.decode())  # type: ignore[attr-defined]
    if form == "GIF":
        settings = {"comment": MARK}
    if form == "JPEG":
        settings["comment"] = MARK
    content = save(form, image, **settings)
    if form == "JPEG":  # the segment of IPTC
        block = b"Photoshop 3.0\x008BIM\x04\x04\0\0" + len(MARK).to_bytes(4) + MARK
        content = content[:2] + b"\xff\xed" + (2 + len(block)).to_bytes(2) + block + content[2:]
    return content + MARK


def pixels(encoded: bytes) -> np.ndarray:
    return decode(tf.constant(encoded), Preprocessing()).numpy()


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF"])
def test_no_metadata_is_left_and_the_pixels_stay(form: str, orientation: int) -> None:
    image = marked(form, orientation)
    assert MARK in image
    kept = without_metadata(image)
    assert MARK not in kept
    np.testing.assert_array_equal(pixels(kept), pixels(image))
    with Image.open(io.BytesIO(kept)) as opened:
        opened.load()
        kind = form if form == "JPEG" else "PNG"
        assert opened.format == kind
        assert not {"icc_profile", "xmp", "comment", "Comment", "photoshop"} & set(opened.info)
        assert dict(opened.getexif()) == ({0x0112: 6} if (form, orientation) == ("JPEG", 6) else {})


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_keeps_its_orientation_and_its_compressed_pixels(orientation: int) -> None:
    image = marked("JPEG", orientation)
    kept = without_metadata(image)
    assert exif.orientation(tf.constant(kept)) == orientation
    assert kept[kept.index(b"\xff\xda") :] + MARK == image[image.index(b"\xff\xda") :]


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.why])
def test_pixels_of_every_kind_stay(name: str) -> None:
    image = KINDS[name].data
    kept = without_metadata(image)
    np.testing.assert_array_equal(pixels(kept), pixels(image))
    assert without_metadata(kept) == kept


def test_a_comment_between_scans_is_removed() -> None:
    image = save("JPEG", progressive=True)
    place = image.rindex(b"\xff\xda")
    comment = b"\xff\xfe" + (2 + len(MARK)).to_bytes(2) + MARK
    kept = without_metadata(image[:place] + comment + image[place:])
    assert MARK not in kept
    np.testing.assert_array_equal(pixels(kept), pixels(image))
