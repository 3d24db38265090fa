"""Removal of metadata from encoded images."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import tensorflow as tf

from keras_vit.data.decode_and_resize import decode
from keras_vit.data.exif import orientation
from keras_vit.preprocessing import Preprocessing

# First bytes of JPEG segments with pixels or colors.
_KEPT_MARKERS = rb"\xff([\xc0-\xdf]|\xe0\0\x10JFIF|\xee\0\x0eAdobe)"
# A segment with a directory of one entry, up to the orientation.
_EXIF = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"


def without_metadata(encoded: bytes) -> bytes:
    """Removes all metadata except a JPEG's orientation from an image file.

    The pixels stay the same. Other formats than JPEG, and JPEGs with an unusual structure, are
    encoded again, as PNG.
    """
    pixels = decode(tf.constant(encoded), Preprocessing()).numpy()
    if encoded.startswith(b"\xff\xd8"):
        stripped = _stripped_jpeg(encoded)
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            if np.array_equal(decode(tf.constant(stripped), Preprocessing()), pixels):
                return stripped
    return bytes(tf.io.encode_png(pixels).numpy())


def _stripped_jpeg(encoded: bytes) -> bytes:
    parts, start = [encoded[:2]], 2
    if (exif_orientation := int(orientation(tf.constant(encoded)))) > 1:
        parts.append(_EXIF + bytes((exif_orientation, *bytes(7))))
    while start < len(encoded) and encoded[start : start + 2] != b"\xff\xda":
        end = start + 2 + int.from_bytes(encoded[start + 2 : start + 4], "big")
        parts += [encoded[start:end]] if re.match(_KEPT_MARKERS, encoded[start : start + 9]) else []
        start = end
    scans = encoded[start:].partition(b"\xff\xd9")[0] + b"\xff\xd9"
    return b"" if re.search(rb"\xff[\xe0-\xef\xfe]", scans) else b"".join((*parts, scans))
