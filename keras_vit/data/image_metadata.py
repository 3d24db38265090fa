"""Removal of metadata from encoded images."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.decode_and_resize import decode
from keras_vit.data.exif import orientation
from keras_vit.preprocessing import Preprocessing

# First bytes of a format; position of the first block; position, length and byte order of the size
# in a block; bytes of a block that its size excludes; first bytes of blocks with pixels or colors.
_FORMATS: tuple[tuple[bytes, *tuple[Any, ...]], ...] = (
    (b"\xff\xd8", 2, 2, 2, "big", 2, rb"\xff([\xc0-\xdf]|\xe0\0\x10JFIF|\xee\0\x0eAdobe)"),
    (b"\x89PNG", 8, 0, 4, "big", 12, rb"(?s).{4}(IHDR|PLTE|tRNS|IDAT|IEND)"),
    (b"RIFF", 12, 4, 4, "little", 8, rb"VP8[X L]|ALPH"),
)
# A segment with a directory of one entry, up to the orientation.
_EXIF = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"


def without_metadata(encoded: bytes) -> bytes:
    """Removes all metadata except the orientation from an image file.

    The pixels stay the same. A JPEG, PNG or WebP file is encoded again, as PNG, only if it is a
    turned PNG or WebP or has an unusual structure; other formats always are.
    """
    pixels = decode(tf.constant(encoded), Preprocessing()).numpy()
    for magic, *layout in _FORMATS:
        if encoded.startswith(magic):
            stripped = _stripped(encoded, *layout)
            with contextlib.suppress(tf.errors.InvalidArgumentError):
                if np.array_equal(decode(tf.constant(stripped), Preprocessing()), pixels):
                    return stripped
    return bytes(tf.io.encode_png(pixels).numpy())


def _stripped(
    encoded: bytes, at: int, place: int, length: int, order: Any, rest: int, kept: bytes
) -> bytes:
    number, jpeg = int(orientation(tf.constant(encoded))), encoded.startswith(b"\xff\xd8")
    parts = [encoded[:at]]
    if jpeg and number > 1:
        parts.append(_EXIF + bytes((number, *bytes(7))))
    while at < len(encoded) and encoded[at : at + 2] != b"\xff\xda":
        size = int.from_bytes(encoded[at + place : at + place + length], order)
        end = at + rest + size + (size % 2 if order == "little" else 0)
        parts += [encoded[at:end]] if re.match(kept, encoded[at : at + 9]) else []
        at = end
    if jpeg:
        scans = encoded[at:].partition(b"\xff\xd9")[0] + b"\xff\xd9"
        return b"" if re.search(rb"\xff[\xe0-\xef\xfe]", scans) else b"".join((*parts, scans))
    content = bytearray(b"".join(parts))
    if order == "little":
        content[4:8] = (len(content) - 8).to_bytes(4, "little")
        if content[12:16] == b"VP8X":
            content[20] &= ~0x2C  # flags of the color profile, Exif and XMP
    return bytes(content)
