"""Format and size of encoded images, read from their headers without decoding.

All functions are graph-safe. B is the number of files.
"""

from __future__ import annotations

import tensorflow as tf

FORMATS = ("unknown", "jpeg", "png", "gif", "bmp", "webp")
_UNKNOWN, _JPEG, _PNG, _GIF, _BMP, _WEBP = range(len(FORMATS))
_LENGTH = 66  # bytes; the longest of the headers (a BMP's with masks) ends there
_BLOCKS = 1 << 15  # of up to 255 bytes, 8 MB at most, up to the end of a GIF's first frame
_LONGEST_SIDE = 2**31  # a product of two does not overflow; decoders refuse them far below
_EXTENSION, _IMAGE = 0x21, 0x2C  # what a block of a GIF starts with
_ADOBE = b"\xff\xee\x00\x0eAdobe"  # marker, length and name of a segment
_CONTROL = 0xF9  # the label of an extension that holds the transparent color


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


def sides(encoded: tf.Tensor) -> tf.Tensor:
    """Returns height and width of images by their first bytes.

    Args:
        encoded: The files' bytes, string (B,).

    Returns:
        Height and width, int64 (B, 2); 0 for a JPEG, whose header stands further back
        (`tf.image.extract_jpeg_shape`), and for an unknown format.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8"))
        >>> sides(tf.stack([png, "text"])).numpy()
        array([[5, 7],
               [0, 0]])
    """
    head, kinds = _head(encoded), formats(encoded)
    packed = _little(head, 21, 4)  # WebP without loss: two sides less one, of 14 bits each
    lossless = (1 + packed // 2**14 % 2**14, 1 + packed % 2**14)
    lossy = (_little(head, 28, 2) % 2**14, _little(head, 26, 2) % 2**14)
    extended = (1 + _little(head, 27, 3), 1 + _little(head, 24, 3))
    is_extended, is_lossless = (_starts(head, name, 12) for name in (b"VP8X", b"VP8L"))
    webp = [
        tf.where(is_extended, extended[i], tf.where(is_lossless, lossless[i], lossy[i]))
        for i in range(2)
    ]
    found = [tf.zeros_like(packed)] * 2
    for kind, pair in (
        (_PNG, (_side(head, 20), _side(head, 16))),
        (_GIF, (_little(head, 8, 2), _little(head, 6, 2))),
        (_BMP, (_signed(_little(head, 22, 4)), _signed(_little(head, 18, 4)))),
        (_WEBP, webp),
    ):
        found = [tf.where(kinds == kind, new, old) for new, old in zip(pair, found, strict=True)]
    return tf.stack(found, axis=1)


def is_refused(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether a PNG, BMP or WebP is of a kind that the decoder reads wrongly.

    Of an animated WebP, TensorFlow 2.21 writes all frames into the memory of one. A PNG whose size
    does not stand at its start passes every limit on it.

    Args:
        encoded: The files' bytes, string (B,).

    Returns:
        bool (B,): True for an animated WebP, for a PNG that does not begin with the chunk IHDR, and
        for a BMP of less than 8 bits a pixel, of 16 bits, compressed, with channels in an order of
        its own, or of OS/2.

    Example:
        >>> is_refused(tf.constant([b"BM" + bytes(60), b"text"])).numpy()
        array([ True, False])
    """
    head, kinds = _head(encoded), formats(encoded)
    animated = _starts(head, b"VP8X", 12) & (head[:, 20] // 2 % 2 == 1)
    bits, compression = _little(head, 28, 2), _little(head, 30, 4)
    masks = ((54, 0xFF0000), (58, 0xFF00), (62, 0xFF))
    usual = tf.reduce_all([_little(head, at, 4) == mask for at, mask in masks], axis=0)
    common = (compression == 0) & ((bits == 8) | (bits == 24) | (bits == 32))
    common |= (compression == 3) & (bits == 32) & usual
    common &= _little(head, 14, 4) >= 40
    headless = (kinds == _PNG) & ~_starts(head, b"IHDR", 12)
    return headless | ((kinds == _BMP) & ~common) | ((kinds == _WEBP) & animated)


def bmp_palette(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the colors of a BMP of 8 bits a pixel.

    Args:
        encoded: The file's bytes, a scalar string that starts as a BMP.

    Returns:
        Red, green and blue, uint8 (256, 3); the identity for a BMP of more bits.
    """
    head = _head(encoded[tf.newaxis])
    start = tf.cast(14 + tf.minimum(_little(head, 14, 4)[0], 1024), tf.int32)
    entries = tf.cast(tf.minimum(_little(head, 46, 4)[0], 256), tf.int32)
    entries = tf.where(entries == 0, 256, entries)
    table = tf.strings.substr(encoded, start, 4 * entries)
    table = tf.reshape(tf.io.decode_raw(table, tf.uint8, fixed_length=1024), (256, 4))
    return tf.reverse(table[:, :3], axis=[1])


def first_frame(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    r"""Cuts a GIF after its first image, and makes that opaque.

    Decoders read all frames of a GIF into memory before they return the first one, and draw what
    is transparent black.

    Args:
        encoded: The file's bytes, a scalar string that starts as a GIF.

    Returns:
        The bytes of a GIF with one image, height and width of that image's rectangle, int64 (2,),
        and row and column of its corner, int64 (2,). A file without a complete image in its first
        32768 blocks comes back empty, with 0.

    Example:
        >>> gif = b"GIF89a" + bytes([1, 0, 1, 0, 0, 0, 0]) + b"," + bytes([0, 0, 0, 0, 1, 0, 1, 0])
        >>> gif += bytes([0, 2, 2, 68, 1, 0]) + b"rest;"
        >>> frame, size, corner = first_frame(tf.constant(gif))
        >>> frame.numpy()[-6:], size.numpy(), corner.numpy()
        (b'\x02\x02D\x01\x00;', array([1, 1]), array([0, 0]))
    """
    data = tf.io.decode_raw(encoded, tf.uint8)
    length = tf.size(data)

    def at(position: tf.Tensor) -> tf.Tensor:
        return tf.cast(data[tf.clip_by_value(position, 0, length - 1)], tf.int32)

    def colours(flags: tf.Tensor) -> tf.Tensor:
        """Bytes of the colour table that the flags announce."""
        return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)

    def block(
        position: tf.Tensor,
        left: tf.Tensor,
        drawn: tf.Tensor,
        ended: tf.Tensor,
        size: tf.Tensor,
        control: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Passes the head of an image or an extension and the blocks of bytes that follow it."""
        kind = at(position)
        image = kind == _IMAGE
        here = [
            tf.cast(at(position + low) + 256 * at(position + low + 1), tf.int64)
            for low in (7, 5, 3, 1)
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
            tf.where(image, here, size),
            tf.where((kind == _EXTENSION) & (at(position + 1) == _CONTROL), position + 3, control),
        )

    start = 13 + colours(at(tf.constant(10)))
    position, _, drawn, _, size, control = tf.while_loop(
        lambda position, left, drawn, ended, *_: ~ended & (position < length) & (left > 0),
        block,
        (
            start,
            tf.constant(_BLOCKS),
            *[tf.constant(False)] * 2,
            tf.zeros(4, tf.int64),
            tf.constant(0),
        ),
    )
    frame = tf.strings.join([tf.strings.substr(encoded, 0, position), b";"])
    # Flags 0: no color of the image is transparent, as without a control extension.
    opaque = [
        tf.strings.substr(frame, 0, control),
        b"\0",
        tf.strings.substr(frame, control + 1, length),
    ]
    frame = tf.where(control > 0, tf.strings.join(opaque), frame)
    size = tf.where(drawn, size, 0)
    return tf.where(drawn, frame, b""), size[:2], size[2:]


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


def lacks_adobe(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether a JPEG lacks the segment in which Adobe's programs note its colors.

    In a JPEG of four channels these programs turn light and dark round. Without the segment
    TensorFlow takes the channels as they are, and Pillow turns them round all the same.

    Args:
        encoded: The file's bytes, a scalar string that starts as a JPEG.

    Returns:
        A scalar bool.

    Example:
        >>> bool(lacks_adobe(tf.io.encode_jpeg(tf.zeros((5, 7, 3), "uint8"))))
        True
    """
    parts = tf.raw_ops.StringSplitV2(input=encoded[tf.newaxis], sep=_ADOBE, maxsplit=1)
    return tf.size(parts.values) < 2


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
