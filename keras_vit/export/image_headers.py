"""What image files say of themselves, read without decoding.

All functions are graph-safe. B is the number of files.
"""

from __future__ import annotations

import tensorflow as tf

FORMATS = ("unknown", "jpeg", "png", "gif", "bmp", "webp")
_UNKNOWN, _JPEG, _PNG, _GIF, _BMP, _WEBP = range(len(FORMATS))
_LENGTH = 32  # bytes; the longest of the headers (WebP's VP8X) ends at 30
_BLOCKS = 1 << 15  # of up to 255 bytes, 8 MB at most, up to the end of a GIF's first frame
_LONGEST_SIDE = 2**31  # a product of two does not overflow; decoders refuse them far below
_EXTENSION, _IMAGE = 0x21, 0x2C  # what a block of a GIF starts with


def formats(encoded: tf.Tensor) -> tf.Tensor:
    """Returns what the files are, by their first bytes.

    Args:
        encoded: The files' bytes, string (B,).

    Returns:
        Indices into `FORMATS`, int32 (B,).

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8"))
        >>> [FORMATS[i] for i in formats(tf.stack([png, "text", ""]))]
        ['png', 'unknown', 'unknown']
    """
    head = _head(encoded)
    riff = _starts(head, b"RIFF") & _starts(head, b"WEBP", 8)
    found = tf.fill(tf.shape(encoded), _UNKNOWN)
    for kind, matches in (
        (_JPEG, _starts(head, b"\xff\xd8\xff")),
        (_PNG, _starts(head, b"\x89PNG\r\n\x1a\n")),
        (_GIF, _starts(head, b"GIF8")),
        (_BMP, _starts(head, b"BM")),
        (_WEBP, riff),
    ):
        found = tf.where(matches, kind, found)
    return found


def areas(encoded: tf.Tensor) -> tf.Tensor:
    """Returns how many pixels the files say that they hold.

    Args:
        encoded: The files' bytes, string (B,).

    Returns:
        Height times width, int64 (B,); 0 for a JPEG, which says it further back
        (`tf.image.extract_jpeg_shape`), and for an unknown format.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8"))
        >>> areas(tf.stack([png, "text"])).numpy()
        array([35,  0])
    """
    head, kinds = _head(encoded), formats(encoded)
    packed = _little(head, 21, 4)  # WebP without loss: two sides less one, of 14 bits each
    lossless = (1 + packed % 2**14) * (1 + packed // 2**14 % 2**14)
    lossy = _little(head, 26, 2) % 2**14 * (_little(head, 28, 2) % 2**14)
    extended = (1 + _little(head, 24, 3)) * (1 + _little(head, 27, 3))
    webp = tf.where(
        _starts(head, b"VP8X", 12),
        extended,
        tf.where(_starts(head, b"VP8L", 12), lossless, lossy),
    )
    found = tf.zeros_like(packed)
    for kind, area in (
        (_PNG, _side(head, 16) * _side(head, 20)),
        (_GIF, _little(head, 6, 2) * _little(head, 8, 2)),
        (_BMP, _signed(_little(head, 18, 4)) * _signed(_little(head, 22, 4))),
        (_WEBP, webp),
    ):
        found = tf.where(kinds == kind, area, found)
    return found


def first_frame(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Cuts a GIF after its first image.

    Decoders read all frames of a GIF into memory before they return the first one.

    Args:
        encoded: The file's bytes, a scalar string that starts as a GIF.

    Returns:
        The bytes of a GIF with one image, and the pixels of that image's rectangle, a scalar int64.
        A file without a complete image in its first 32768 blocks comes back empty, with 0 pixels.

    Example:
        >>> gif = b"GIF89a" + bytes([1, 0, 1, 0, 0, 0, 0]) + b"," + bytes([0, 0, 0, 0, 1, 0, 1, 0])
        >>> gif += bytes([0, 2, 2, 68, 1, 0]) + b"rest;"
        >>> frame, area = first_frame(tf.constant(gif))
        >>> frame.numpy()[-6:], int(area)
        (b'\x02\x02D\x01\x00;', 1)
    """
    data = tf.io.decode_raw(encoded, tf.uint8)
    length = tf.size(data)

    def at(position: tf.Tensor) -> tf.Tensor:
        return tf.cast(data[tf.clip_by_value(position, 0, length - 1)], tf.int32)

    def colours(flags: tf.Tensor) -> tf.Tensor:
        """Bytes of the colour table that the flags announce."""
        return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)

    def block(
        position: tf.Tensor, left: tf.Tensor, drawn: tf.Tensor, ended: tf.Tensor, area: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Passes the head of an image or an extension and the blocks of bytes that follow it."""
        kind = at(position)
        image = kind == _IMAGE
        sides = [
            tf.cast(at(position + low) + 256 * at(position + low + 1), tf.int64) for low in (5, 7)
        ]
        end, left = tf.while_loop(
            lambda end, left: (at(end) != 0) & (end < length) & (left > 0),
            lambda end, left: (end + 1 + at(end), left - 1),
            (position + tf.where(image, 11 + colours(at(position + 9)), 2), left - 1),
        )
        complete = (at(end) == 0) & (end < length)
        return (
            end + 1,
            left,
            image & complete,
            image | ~complete | (kind != _EXTENSION),
            tf.where(image, sides[0] * sides[1], area),
        )

    start = 13 + colours(at(tf.constant(10)))
    position, _, drawn, _, area = tf.while_loop(
        lambda position, left, drawn, ended, area: ~ended & (position < length) & (left > 0),
        block,
        (start, tf.constant(_BLOCKS), *[tf.constant(False)] * 2, tf.constant(0, tf.int64)),
    )
    frame = tf.strings.join([tf.strings.substr(encoded, 0, position), b";"])
    return tf.where(drawn, frame, b""), tf.where(drawn, area, 0)


def scans(encoded: tf.Tensor) -> tf.Tensor:
    """Returns how many times a JPEG passes over its image.

    A progressive one has about ten scans. Each costs a decoder as much time as the whole image,
    whatever it holds, so that a small file with many of them keeps a processor busy for minutes.

    Args:
        encoded: The file's bytes, a scalar string that starts as a JPEG.

    Returns:
        The number of start-of-scan markers, a scalar int64; those of a thumbnail count as well.

    Reference: "Two Issues with the JPEG Standard",
        https://libjpeg-turbo.org/pmwiki/uploads/About/TwoIssueswiththeJPEGStandard.pdf

    Example:
        >>> int(scans(tf.io.encode_jpeg(tf.zeros((5, 7, 3), "uint8"))))
        1
    """
    data = tf.io.decode_raw(encoded, tf.uint8)
    return tf.math.count_nonzero((data[:-1] == 0xFF) & (data[1:] == 0xDA))


def _head(encoded: tf.Tensor) -> tf.Tensor:
    """The first bytes of each file, int64 (B, 32), zeros behind the end of a shorter one."""
    return tf.cast(tf.io.decode_raw(encoded, tf.uint8, fixed_length=_LENGTH), tf.int64)


def _starts(head: tf.Tensor, magic: bytes, at: int = 0) -> tf.Tensor:
    return tf.reduce_all(head[:, at : at + len(magic)] == tuple(magic), axis=1)


def _little(head: tf.Tensor, at: int, count: int) -> tf.Tensor:
    return tf.reduce_sum(head[:, at : at + count] * [256**i for i in range(count)], axis=1)


def _big(head: tf.Tensor, at: int, count: int) -> tf.Tensor:
    return _little(tf.reverse(head[:, at : at + count], axis=[1]), 0, count)


def _side(head: tf.Tensor, at: int) -> tf.Tensor:
    return tf.minimum(_big(head, at, 4), _LONGEST_SIDE)


def _signed(number: tf.Tensor) -> tf.Tensor:
    """Absolute value of 32 bits with a sign; the height of a BMP is negative from the top down."""
    return tf.abs(tf.where(number >= 2**31, number - 2**32, number))
