"""Inspection of image files before training: size, pixel values, content and damage."""

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
from keras_vit.data.near_duplicates import MAX_COMPARED, content_hash
from keras_vit.image_formats import DECODED, image_format

_UNKNOWN_FORMAT = f"not a {', '.join(DECODED[:-1])} or {DECODED[-1]}"
_NARROW_RANGE = 64  # of 256 values: a quarter
_FILL_VALUE = 128  # each channel of the pixels of missing JPEG blocks
_NUM_INSERTED = 64  # bytes
_PROFILE_ERRORS = (
    *(OSError, ValueError, SyntaxError),
    *(ImageCms.PyCMSError, PIL.Image.DecompressionBombError),
)
_PROFILE_END = 2**16  # bytes; a color profile begins before
# CIE XYZ of the red, green and blue of sRGB, adapted to D50 (https://www.color.org/srgbprofiles.xalter).
_SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
_MAX_DIFFERENCE = 0.02  # of rounded values


@dataclasses.dataclass(frozen=True)
class ImageProperties:
    """Properties of a usable image."""

    digest: str
    size: tuple[int, int]
    range: tuple[int, int]
    oriented: bool
    narrow: bool
    hash: np.ndarray | None
    other_colors: bool


def inspect_images(examples: Examples, indices: Sequence[int]) -> list[ImageProperties | str]:
    """Returns the properties of each image, or the reason why the file cannot be used."""
    contents: list[bytes] = []
    results: dict[int, ImageProperties | str] = {}
    for position, index in enumerate(indices):
        contents.append(b"")
        try:
            contents[position] = examples.read(index)
        except OSError as error:
            results[position] = f"cannot be read: {error.strerror}"
    with tf.device("CPU"):
        small = image_reading.inspect_small(tf.constant(contents))
    for position, sides, oriented, pixels in zip(*(part.numpy() for part in small), strict=True):
        if sides.any():
            image = np.frombuffer(pixels[-3 * int(np.prod(sides)) :], np.uint8).reshape(*sides, 3)
            results[position] = _properties_of(image, bool(oriented), contents[position])
    for position, index in enumerate(indices):
        if position not in results:
            results[position] = _inspect_one(contents[position], examples.names[index])
        result = results[position]
        if len(examples) > MAX_COMPARED and isinstance(result, ImageProperties):
            results[position] = dataclasses.replace(result, hash=None)  # not compared, 2 KB each
    return [results[position] for position in range(len(contents))]


def _inspect_one(encoded: bytes, name: str) -> ImageProperties | str:
    with tf.device("CPU"):
        pixels, oriented, header = image_reading.inspect(tf.constant(encoded))
    if int(header.code) != image_reading.GOOD:
        format = image_format(encoded, name)
        if format not in DECODED:
            return format or (_UNKNOWN_FORMAT if encoded else "empty file")
        if int(header.code) == image_reading.DAMAGED:
            return f"damaged or truncated {format}"
        message = image_reading.message(header, image_reading.LOCAL).numpy().decode()
        return message.removeprefix("The image ")
    result = _properties_of(pixels.numpy(), bool(oriented), encoded)
    size = (int(header.height), int(header.width))  # before a JPEG is decoded at 1/2 or 1/4
    return result if isinstance(result, str) else dataclasses.replace(result, size=size)


def _properties_of(image: np.ndarray, oriented: bool, encoded: bytes) -> ImageProperties | str:
    height, width = image.shape[:2]
    if min(height, width) < MIN_IMAGE_SIDE:
        return f"{width} x {height} pixels; the shorter side must be at least {MIN_IMAGE_SIDE}"
    if _lacks_data(image, encoded):
        return "damaged or truncated JPEG"
    lowest, highest = int(image.min()), int(image.max())
    has_16_bits = encoded.startswith(b"\x89PNG") and encoded[24] == 16
    narrow = has_16_bits and lowest < highest < lowest + _NARROW_RANGE
    # Includes the shape: 2 x 6 black pixels differ from 3 x 4 black pixels.
    digest = hashlib.sha256(str(image.shape).encode())
    digest.update(image.data)
    return ImageProperties(
        digest=digest.hexdigest(),
        size=(height, width),
        range=(lowest, highest),
        oriented=oriented,
        narrow=narrow,
        hash=content_hash(image),
        other_colors=_has_other_colors(encoded),
    )


def _has_other_colors(encoded: bytes) -> bool:
    """Returns whether an image has a color profile with other primaries than sRGB."""
    if not re.search(b"ICC_PROFILE|iCCP|ICCP", encoded[:_PROFILE_END]):
        return False
    with contextlib.suppress(*_PROFILE_ERRORS):
        with PIL.Image.open(io.BytesIO(encoded)) as image:
            content = image.info.get("icc_profile") or b""
        profile = ImageCms.ImageCmsProfile(io.BytesIO(content)).profile
        colorants = profile.red_colorant, profile.green_colorant, profile.blue_colorant
        primaries = np.array([xyz for xyz, _ in filter(None, colorants)])
        return primaries.shape == (3, 3) and bool(np.abs(primaries - _SRGB).max() > _MAX_DIFFERENCE)
    return False


def _lacks_data(image: np.ndarray, encoded: bytes) -> bool:
    """Returns whether the data of a baseline JPEG ends before its last block.

    The decoder fills the missing blocks with gray. Data inserted before the end-of-image marker
    changes these blocks, but no block of a complete image.
    """
    ends = slice(2), slice(-2, None)
    corners = (image[rows, columns] for rows in ends for columns in ends)
    has_gray_corner = any((corner == _FILL_VALUE).all() for corner in corners)
    if not has_gray_corner or not encoded.startswith(b"\xff\xd8"):
        return False
    end, scan = encoded.rfind(b"\xff\xd9"), encoded.rfind(b"\xff\xda")
    if re.search(rb"\xff[\xc2\xca]\0", encoded[:scan]):
        return False  # progressive: missing blocks have a color, and inserted data may be a scan
    begin = max(end - _NUM_INSERTED, scan + 2 + int.from_bytes(encoded[scan + 2 : scan + 4]))
    inserted = encoded[:end] + encoded[min(begin, end) :]
    with tf.device("CPU"):
        changed = image_reading.inspect(tf.constant(inserted))[0].numpy()
    return not np.array_equal(changed, image)
