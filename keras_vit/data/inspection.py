"""Inspection of image files before training: size, pixel values, content and damages."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import re
from collections.abc import Sequence

import numpy as np
import PIL.Image
import tensorflow as tf
from PIL import ImageCms

from keras_vit.constants import MIN_IMAGE_SIDE
from keras_vit.data import image_reading
from keras_vit.data.examples import Examples
from keras_vit.data.twins import MOST, content_hash
from keras_vit.image_formats import DECODED, image_format

_FOREIGN = f"not a {', '.join(DECODED[:-1])} or {DECODED[-1]}"
_NARROW = 64  # of 256 values: a quarter
_FILL = 128  # each channel of the pixels of missing JPEG blocks
_INSERTED = 64  # bytes
_HEAD = 2**16  # bytes in which a color profile begins
# CIE XYZ of the red, green and blue of sRGB, adapted to D50 (https://www.color.org/srgbprofiles.xalter).
_SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
_SAME = 0.02  # largest difference of rounded values


@dataclasses.dataclass(frozen=True)
class Finding:
    """Properties of a usable image."""

    digest: str
    size: tuple[int, int]
    range: tuple[int, int]
    oriented: bool
    narrow: bool
    hash: np.ndarray | None
    other_colors: bool


def inspect_images(examples: Examples, indices: Sequence[int]) -> list[Finding | str]:
    """Returns a `Finding` for each image, or the reason why the file cannot be used."""
    contents: list[bytes] = []
    found: dict[int, Finding | str] = {}
    for place, index in enumerate(indices):
        contents.append(b"")
        try:
            contents[place] = examples.read(index)
        except OSError as error:
            found[place] = f"cannot be read: {error.strerror}"
    with tf.device("CPU"):
        small = image_reading.inspect_small(tf.constant(contents))
    for place, sides, oriented, pixels in zip(*(part.numpy() for part in small), strict=True):
        if sides.any():
            image = np.frombuffer(pixels[-3 * int(np.prod(sides)) :], np.uint8).reshape(*sides, 3)
            found[place] = _image(image, bool(oriented), contents[place])
    for place, index in enumerate(indices):
        if place not in found:
            found[place] = _inspect_alone(contents[place], examples.names[index])
        if len(examples) > MOST and isinstance(readable := found[place], Finding):
            found[place] = dataclasses.replace(readable, hash=None)  # not compared, and 2 KB each
    return [found[place] for place in range(len(contents))]


def _inspect_alone(encoded: bytes, name: str) -> Finding | str:
    with tf.device("CPU"):
        pixels, oriented, header = image_reading.inspect(tf.constant(encoded))
    if int(header.code) != image_reading.GOOD:
        kind = image_format(encoded, name)
        if kind not in DECODED:
            return kind or (_FOREIGN if encoded else "empty file")
        if int(header.code) == image_reading.DAMAGED:
            return f"damaged or truncated {kind}"
        text = image_reading.message(header, image_reading.LOCAL).numpy().decode()
        return text.removeprefix("The image ")
    found = _image(pixels.numpy(), bool(oriented), encoded)
    size = (int(header.height), int(header.width))  # before a JPEG is decoded at 1/2 or 1/4
    return found if isinstance(found, str) else dataclasses.replace(found, size=size)


def _image(image: np.ndarray, oriented: bool, encoded: bytes) -> Finding | str:
    height, width = image.shape[:2]
    if min(height, width) < MIN_IMAGE_SIDE:
        return f"{width} x {height} pixels; the shorter side must be at least {MIN_IMAGE_SIDE}"
    if _lacks_data(image, encoded):
        return "damaged or truncated JPEG"
    low, high = int(image.min()), int(image.max())
    has_16_bits = encoded.startswith(b"\x89PNG") and encoded[24] == 16
    narrow = has_16_bits and low < high < low + _NARROW
    # Includes the shape: 2 x 6 black pixels differ from 3 x 4 black pixels.
    digest = hashlib.sha256(str(image.shape).encode())
    digest.update(image.data)
    size, values = (height, width), (low, high)
    other = _has_other_colors(encoded)
    return Finding(digest.hexdigest(), size, values, oriented, narrow, content_hash(image), other)


def _has_other_colors(encoded: bytes) -> bool:
    """Returns whether an image has a color profile with other primaries than sRGB."""
    if not re.search(b"ICC_PROFILE|iCCP|ICCP", encoded[:_HEAD]):
        return False
    with contextlib.suppress(OSError, ValueError, SyntaxError, ImageCms.PyCMSError):
        with PIL.Image.open(io.BytesIO(encoded)) as image:
            content = image.info.get("icc_profile") or b""
        profile = ImageCms.ImageCmsProfile(io.BytesIO(content)).profile
        colorants = profile.red_colorant, profile.green_colorant, profile.blue_colorant
        found = np.array([xyz for xyz, _ in filter(None, colorants)])
        return found.shape == (3, 3) and bool(np.abs(found - _SRGB).max() > _SAME)
    return False


def _lacks_data(image: np.ndarray, encoded: bytes) -> bool:
    """Returns whether the data of a baseline JPEG end before its last block.

    The decoder fills the missing blocks with gray. Data inserted before the end-of-image marker
    change these blocks, but no block of a complete image.
    """
    ends = slice(2), slice(-2, None)
    gray = any((image[rows, columns] == _FILL).all() for rows in ends for columns in ends)
    if not gray or not encoded.startswith(b"\xff\xd8"):
        return False
    end = encoded.rfind(b"\xff\xd9")
    inserted = encoded[:end] + encoded[max(end - _INSERTED, 0) :]
    with tf.device("CPU"):
        again = image_reading.inspect(tf.constant(inserted))[0].numpy()
    return not np.array_equal(again, image)
