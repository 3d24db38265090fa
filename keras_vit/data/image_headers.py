"""Detection of the format and size of encoded images from their first bytes.

All functions are graph-safe.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.data.exif import contains, count, one_operator

FORMATS = ("unknown", "jpeg", "png", "gif", "bmp", "webp")
_HEADER_SIZE = 66  # bytes, of a BMP with masks
_MAX_BLOCKS = 1 << 15  # of up to 255 bytes (8 MB), before the end of a GIF's first frame
_MAX_SIDE = 2**31  # a product of two does not overflow; decoders have lower limits
_EXTENSION_BLOCK, _IMAGE_BLOCK = 0x21, 0x2C  # first bytes of blocks of a GIF
_SCAN_MARKER = b"\xff\xda"
# Length and number of components of scans, the only ones that decoders accept.
_SCAN_HEADERS = (b"\0\x08\1", b"\0\x0a\2", b"\0\x0c\3", b"\0\x0e\4")
# Start of progressive frames: Huffman and arithmetic.
_PROGRESSIVE_MARKERS = (b"\xff\xc2\0", b"\xff\xca\0")
_ADOBE_SEGMENT = b"\xff\xee\x00\x0eAdobe"  # marker, length and name of a segment
_GRAPHIC_CONTROL = 0xF9  # label of the extension that contains the transparent color

# Integers in headers: position of the first byte, and number of bytes.
_LITTLE_ENDIAN = (
    *((14, 4), (18, 4), (22, 4), (28, 2), (30, 4), (46, 4), (54, 4), (58, 4), (62, 4)),  # BMP
    *((6, 2), (8, 2)),  # GIF
    *((20, 1), (21, 4), (24, 3), (26, 2), (27, 3)),  # WebP
)
_BIG_ENDIAN = ((16, 4), (20, 4))  # PNG
# Magic bytes by position, of the formats and of chunks of PNG and WebP.
_MAGIC = {
    "jpeg": {0: b"\xff\xd8\xff"},
    "png": {0: b"\x89PNG\r\n\x1a\n"},
    "gif": {0: b"GIF8"},
    "bmp": {0: b"BM"},
    "webp": {0: b"RIFF", 8: b"WEBP"},
    "IHDR": {12: b"IHDR"},
    "VP8X": {12: b"VP8X"},
    "VP8L": {12: b"VP8L"},
}


def _byte_weights() -> np.ndarray:
    """Returns an array (_HEADER_SIZE, N) of the place value of each byte in each header integer."""
    weights = np.zeros((len(_LITTLE_ENDIAN) + len(_BIG_ENDIAN), _HEADER_SIZE), np.int64)
    for row, (start, size) in enumerate((*_LITTLE_ENDIAN, *_BIG_ENDIAN)):
        step = 1 if row < len(_LITTLE_ENDIAN) else -1
        weights[row, start : start + size] = 256 ** np.arange(size)[::step]
    return weights.T


def _magic_bytes() -> np.ndarray:
    """Returns an array (_HEADER_SIZE, M) of magic bytes, in which -1 matches any byte."""
    magic = np.full((_HEADER_SIZE, len(_MAGIC)), -1, np.int64)
    for column, parts in enumerate(_MAGIC.values()):
        for start, content in parts.items():
            magic[start : start + len(content), column] = tuple(content)
    return magic


_BYTE_WEIGHTS, _MAGIC_BYTES = _byte_weights(), _magic_bytes()


class Head(NamedTuple):
    """Format and size of an image, read from its first bytes.

    Args:
        format: Index into `FORMATS`, a scalar int32.
        sides: Height and width, int64 (2,); 0 for a JPEG, whose size is not in the first bytes
            (`tf.image.extract_jpeg_shape`), and for an unknown format.
        refused: Whether the decoder fails on this kind, a scalar bool: an animated WebP, a PNG
            whose first chunk is not IHDR, and a BMP of less than 8 bits per pixel, of 16 bits,
            compressed, with an unusual channel order, or of OS/2.
    """

    format: tf.Tensor
    sides: tf.Tensor
    refused: tf.Tensor


def head(encoded: tf.Tensor) -> Head:
    """Reads the format and size of an image from its first bytes.

    Two kinds are refused for safety: TensorFlow 2.21 writes all frames of an animated WebP into the
    memory of one frame, and a PNG whose size is not in its first bytes bypasses the size limits.
    """
    data = _first_bytes(encoded)
    little, big = _numbers(data)
    matches = tf.unstack(tf.reduce_all((data == _MAGIC_BYTES) | (_MAGIC_BYTES < 0), axis=0))
    has_magic = dict(zip(_MAGIC, matches, strict=True))
    formats = tf.stack([has_magic[name] for name in FORMATS[1:]])
    index = tf.reduce_sum(tf.cast(formats, tf.int32) * tf.range(1, len(FORMATS)))

    packed = little[21, 4]  # width - 1 and height - 1, of 14 bits each
    lossless = [1 + packed // 2**14 % 2**14, 1 + packed % 2**14]
    lossy = [little[28, 2] % 2**14, little[26, 2] % 2**14]
    canvas = [1 + little[27, 3], 1 + little[24, 3]]
    webp = tf.where(has_magic["VP8X"], canvas, tf.where(has_magic["VP8L"], lossless, lossy))
    png = tf.minimum([big[20, 4], big[16, 4]], _MAX_SIDE)
    bmp = tf.stack([little[22, 4], little[18, 4]])
    bmp = tf.abs(
        tf.where(bmp >= 2**31, bmp - 2**32, bmp)
    )  # negative height: rows from top to bottom
    gif = [little[8, 2], little[6, 2]]
    unknown = tf.zeros(2, tf.int64)

    bits, compression = little[28, 2], little[30, 4]
    masks = tf.equal([little[54, 4], little[58, 4], little[62, 4]], [0xFF0000, 0xFF00, 0xFF])
    is_usual_bmp = (compression == 0) & ((bits == 8) | (bits == 24) | (bits == 32))
    is_usual_bmp |= (compression == 3) & (bits == 32) & tf.reduce_all(masks)
    is_usual_bmp &= little[14, 4] >= 40
    is_animated_webp = has_magic["VP8X"] & (little[20, 1] // 2 % 2 == 1)
    false = tf.constant(False)
    refused = [false, false, ~has_magic["IHDR"], false, ~is_usual_bmp, is_animated_webp]
    return Head(
        index,
        tf.gather(tf.stack([unknown, unknown, png, gif, bmp, webp]), index),
        tf.gather(tf.stack(refused), index),
    )


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def bmp_palette(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the palette of an 8-bit BMP, of shape (256, 3)."""
    little, _ = _numbers(_first_bytes(encoded))
    start = tf.cast(14 + tf.minimum(little[14, 4], 1024), tf.int32)
    num_colors = tf.cast(tf.minimum(little[46, 4], 256), tf.int32)
    num_colors = tf.where(num_colors == 0, 256, num_colors)
    palette = tf.strings.substr(encoded, start, 4 * num_colors)
    palette = tf.reshape(tf.io.decode_raw(palette, tf.uint8, fixed_length=1024), (256, 4))
    return tf.reverse(palette[:, :3], axis=[1])


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def first_frame(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns a GIF of only the first frame, made opaque, and the frame's size and corner.

    Decoders read all frames of a GIF into memory before they return the first frame, and render
    transparent pixels black.
    """
    data = tf.io.decode_raw(encoded, tf.uint8)
    length = tf.size(data)

    def byte_at(position: tf.Tensor) -> tf.Tensor:
        return tf.cast(data[tf.clip_by_value(position, 0, length - 1)], tf.int32)

    def color_table_size(flags: tf.Tensor) -> tf.Tensor:
        """Returns the size of the color table in bytes, from the byte of flags."""
        return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)

    def skip_block(*state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Skips the header and the data blocks of an image or extension."""
        position, blocks_left, _, _, size_and_corner, control = state
        kind = byte_at(position)
        is_image, is_extension = kind == _IMAGE_BLOCK, kind == _EXTENSION_BLOCK
        low_bytes = [position + offset for offset in (7, 5, 3, 1)]
        numbers = [byte_at(low_byte) + 256 * byte_at(low_byte + 1) for low_byte in low_bytes]
        header_size = tf.where(is_image, 11 + color_table_size(byte_at(position + 9)), 2)
        end, blocks_left = tf.while_loop(
            lambda end, blocks_left: (byte_at(end) != 0) & (end < length) & (blocks_left > 0),
            lambda end, blocks_left: (end + 1 + byte_at(end), blocks_left - 1),
            (position + header_size, blocks_left - 1),
        )
        is_complete = (byte_at(end) == 0) & (end < length)
        is_control = is_extension & (byte_at(position + 1) == _GRAPHIC_CONTROL)
        return (
            end + 1,
            blocks_left,
            is_image & is_complete,
            is_image | ~is_complete | ~is_extension,
            tf.where(is_image, tf.cast(numbers, tf.int64), size_and_corner),
            tf.where(is_control, position + 3, control),
        )

    start = 13 + color_table_size(byte_at(tf.constant(10)))
    false, size_and_corner = tf.constant(False), tf.zeros(4, tf.int64)
    position, _, has_image, _, size_and_corner, control = tf.while_loop(
        lambda position, blocks, _, ended, *rest: ~ended & (position < length) & (blocks > 0),
        skip_block,
        (start, tf.constant(_MAX_BLOCKS), false, false, size_and_corner, tf.constant(0)),
    )
    frame = tf.strings.join([tf.strings.substr(encoded, 0, position), b";"])
    # With flags 0 no color of the image is transparent, as without a control extension.
    opaque = [
        tf.strings.substr(frame, 0, control),
        b"\0",
        tf.strings.substr(frame, control + 1, length),
    ]
    frame = tf.where(control > 0, tf.strings.join(opaque), frame)
    size_and_corner = tf.where(has_image, size_and_corner, 0)
    return tf.where(has_image, frame, b""), size_and_corner[:2], size_and_corner[2:]


def has_more_scans(encoded: tf.Tensor, limit: int) -> tf.Tensor:
    """Returns whether a JPEG has more than `limit` scans.

    A progressive JPEG has about ten scans. Decoding a scan takes as long as decoding a whole image,
    whatever its content, so a small file with many scans can occupy a processor for minutes.

    Reference: "Two Issues with the JPEG Standard",
        https://libjpeg-turbo.org/pmwiki/uploads/About/TwoIssueswiththeJPEGStandard.pdf
    """

    def has_more_headers() -> tf.Tensor:  # without markers in a film after the image
        headers = [_SCAN_MARKER + header for header in _SCAN_HEADERS]
        return sum(count(encoded, header, limit + 1) for header in headers) > limit

    return tf.cond(contains(encoded, _SCAN_MARKER, limit), has_more_headers, lambda: False)


def keeps_coefficients(encoded: tf.Tensor, channels: tf.Tensor) -> tf.Tensor:
    """Returns whether the decoder stores the coefficients of a whole JPEG, at any decoded size.

    They take 6 bytes per pixel, if the JPEG is progressive or a scan lacks some color channels.
    """
    headers = [_SCAN_MARKER + header for header in _SCAN_HEADERS[:2]]
    lacks_channels = tf.reduce_any([contains(encoded, header) for header in headers])
    is_progressive = tf.reduce_any([contains(encoded, mark) for mark in _PROGRESSIVE_MARKERS])
    return is_progressive | (lacks_channels & (channels > 1))


def lacks_adobe(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether a JPEG lacks the APP14 segment, in which Adobe stores color information.

    Adobe's programs invert the values of a four-channel JPEG. Without the segment, TensorFlow does
    not invert the channels, but Pillow does.
    """
    return ~contains(encoded, _ADOBE_SEGMENT)


def _first_bytes(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the first bytes as an int64 column of shape (_HEADER_SIZE, 1), zero-padded."""
    data = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)
    return tf.cast(data, tf.int64)[:, tf.newaxis]


def _numbers(data: tf.Tensor) -> tuple[dict[tuple[int, int], tf.Tensor], ...]:
    """Returns the little-endian and the big-endian header integers, by position and size."""
    values = tf.unstack(tf.reduce_sum(data * _BYTE_WEIGHTS, axis=0))
    little = dict(zip(_LITTLE_ENDIAN, values, strict=False))
    return little, dict(zip(_BIG_ENDIAN, values[len(little) :], strict=True))
