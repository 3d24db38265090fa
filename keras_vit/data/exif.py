"""Exif orientation of images: extraction from encoded files, and rotation of pixels.

All functions are graph-safe and run in bounded time on untrusted bytes. Images with damaged
metadata are treated as upright. H and W are the image's height and width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

_MAX_BLOCKS = 4096  # maximum number of blocks of a file searched for Exif
_PREFIX = b"Exif\0\0"
_HEAD = 10  # bytes: marker, length and prefix in a JPEG, length and name in a PNG and a WebP
_ORIENTATION = 0x0112  # tag of the entry

# Each operator of a branch costs time even if the branch is not taken, so these are one operator.
one_operator = functools.partial(
    tf.function, autograph=False, experimental_attributes={"_noinline": True}
)


def contains(encoded: tf.Tensor, text: tf.Tensor | bytes, more_than: int = 0) -> tf.Tensor:
    """Returns whether a file contains a text more than a number of times."""
    return count(encoded, text, more_than + 1) > more_than


def count(encoded: tf.Tensor, text: tf.Tensor | bytes, most: int) -> tf.Tensor:
    """Returns how often a file contains a text, at most `most` times."""
    # A third of the time of comparing all pairs of bytes.
    parts = tf.raw_ops.StringSplitV2(input=encoded[tf.newaxis], sep=text, maxsplit=most)
    return tf.size(parts.values) - 1


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the Exif orientation, 1 to 8, as int64; 1 (upright) if the file has none.

    Reads the first directory of a JPEG's first Exif segment, a PNG's eXIf chunk or a WebP's EXIF
    chunk, as Pillow does, but no XMP and no profile in a PNG's text. The first orientation entry
    that is one 16-bit integer, as in the standard, or one 32-bit integer is used.
    """
    # The name of an Exif block, as a cheap first test.
    name = tf.where(_is_png(encoded), b"eXIf", b"EXIF")
    return tf.cond(
        contains(encoded, tf.where(tf.io.is_jpeg(encoded), _PREFIX, name)),
        lambda: _stored_orientation(encoded),
        lambda: tf.constant(1, tf.int64),
    )


def turn(image: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Applies an Exif orientation; returns upright pixels of shape (H, W, C) or (W, H, C)."""
    if isinstance(number, int) and number == 1:
        return image
    number = tf.cast(number, tf.int64)
    return tf.cond(number == 1, lambda: image, lambda: _turned(image, number))


def swapped(pair: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Swaps a (row, column) pair if the Exif orientation swaps rows and columns."""
    # Not `pair[::-1]`, for which TensorFlow's graph optimizer logs an error.
    return tf.where(tf.cast(number, tf.int64) >= 5, tf.reverse(pair, [0]), pair)


def mirrored(begin: tf.Tensor, rest: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Returns the first row and column of a crop after the flips of an Exif orientation.

    `rest` is the height and width of the image minus those of the crop.
    """
    return tf.where(_is_mirrored(tf.cast(number, tf.int64)), rest - begin, begin)


@one_operator
def _turned(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    order = tf.where(number >= 5, [1, 0, 2], [0, 1, 2])
    dims = tf.concat([_is_mirrored(number), [False]], axis=0)
    turned = tf.raw_ops.Reverse(tensor=tf.transpose(image, order), dims=dims)
    return tf.ensure_shape(turned, (None, None, image.shape[-1]))


def _is_mirrored(number: tf.Tensor) -> tf.Tensor:
    """Returns whether rows and whether columns are flipped, after any transposition."""
    return tf.reduce_any(number == tf.constant([(3, 4, 7, 8), (2, 3, 6, 7)], tf.int64), axis=1)


def _is_png(encoded: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(encoded, 0, 4) == b"\x89PNG"


def _segment(encoded: tf.Tensor) -> tf.Tensor:
    """Returns a JPEG's first Exif (APP1) segment, provided it precedes the first scan."""

    def block(head: tf.Tensor) -> tuple[tf.Tensor, ...]:
        exif = (head[1] == 0xE1) & tf.reduce_all(head[4:] == tuple(_PREFIX))
        ends = (head[0] != 0xFF) | (head[1] == 0xDA)
        size = 2 + 256 * head[2] + head[3]
        return exif, ends, tf.where(head[1] == 0xFF, tf.ones_like(size), size)  # a fill byte

    at, size = _find_block(encoded, tf.constant(2, tf.int64), block)
    return _cut(encoded, at + 4, size - 4)


def _chunk(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the eXIf chunk of a PNG (even after the pixels) or the EXIF chunk of a WebP."""
    png = _is_png(encoded)
    riff = tf.cast(~png, tf.int64)
    supported = png | (_cut(encoded, 8, 8) == b"WEBPVP8X")

    def block(head: tf.Tensor) -> tuple[tf.Tensor, ...]:
        name = tf.where(png, head[4:8], head[:4])
        size = tf.where(png, head[:4], tf.reverse(head[4:8], [0]))
        size = tf.reduce_sum(size * [2**24, 2**16, 2**8, 1])
        exif = tf.reduce_all(tf.where(png, name == tuple(b"eXIf"), name == tuple(b"EXIF")))
        ends = ~supported | tf.reduce_all(name == tuple(b"IEND"))
        # A checksum of 4 bytes follows the data in a PNG; the data of a WebP have an even length.
        return exif & supported, ends, tf.where(png, size + 12, size + 8 + size % 2)

    at, size = _find_block(encoded, 8 + 4 * riff, block)
    return _cut(encoded, at + 8, size - 12 + 4 * riff)


def _find_block(
    encoded: tf.Tensor, start: tf.Tensor, block: Callable[[tf.Tensor], tuple[tf.Tensor, ...]]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the position and size of the Exif block; the size is 0 if there is none.

    Given the first bytes of a block, `block` returns whether it is Exif, whether the search ends,
    and the size of the block.
    """

    def read_block(at: tf.Tensor) -> tuple[tf.Tensor, ...]:
        head = tf.io.decode_raw(_cut(encoded, at, _HEAD), tf.uint8, fixed_length=_HEAD)
        return at, *block(tf.cast(head, tf.int64))  # zero-padded

    at, exif, _, size = tf.while_loop(
        lambda at, exif, ends, size: ~exif & ~ends & (at < _size(encoded)),
        lambda at, exif, ends, size: read_block(at + size),
        read_block(start),
        maximum_iterations=_MAX_BLOCKS,
    )
    return at, size * tf.cast(exif, tf.int64)


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def _stored_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the orientation stored in the Exif block of a file, which has TIFF format."""
    block = tf.cond(tf.io.is_jpeg(encoded), lambda: _segment(encoded), lambda: _chunk(encoded))
    prefixed = tf.cast(tf.strings.substr(block, 0, len(_PREFIX)) == _PREFIX, tf.int64)
    tiff = _cut(block, len(_PREFIX) * prefixed, _size(block))
    order = tf.strings.substr(tiff, 0, 4)
    little = order == b"II*\0"

    def words(text: tf.Tensor, length: int | None = None) -> tf.Tensor:
        """Zero-pads bytes to `length` and decodes them as 16-bit integers."""
        values = tf.cast(tf.io.decode_raw(text, tf.uint16, fixed_length=length), tf.int64)
        return tf.where(little, values, values % 256 * 256 + values // 256)

    offset = words(_cut(tiff, 4, 4), 4)
    at = tf.reduce_sum(tf.where(little, offset, tf.reverse(offset, [0])) * [1, 2**16])
    num_entries = words(_cut(tiff, at, 2), 2)[0]
    max_entries = tf.maximum(_size(tiff) - at - 2, 0) // 12
    entries = tf.reshape(
        words(_cut(tiff, at + 2, 12 * tf.minimum(num_entries, max_entries))), (-1, 6)
    )
    scale = tf.cast(tf.where(little, [1, 2**16], [2**16, 1]), tf.int64)  # of 32-bit words
    tag, kind, short = entries[:, 0], entries[:, 1], entries[:, 4]
    count, long = (tf.reduce_sum(entries[:, i : i + 2] * scale, axis=1) for i in (2, 4))
    # Types of the entry: integers of 16 and of 32 bits.
    is_short, is_long = (kind == 3) | (kind == 8), (kind == 4) | (kind == 9)
    fitting = (tag == _ORIENTATION) & (count == 1) & (is_short | is_long)
    default = tf.ones((1,), tf.int64)
    orientations = tf.boolean_mask(tf.where(is_short, short, long), fitting)
    number = tf.concat([orientations, default], axis=0)[0]
    valid = (little | (order == b"MM\0*")) & (number >= 1) & (number <= 8)
    return tf.where(valid, number, default[0])


def _cut(text: tf.Tensor, at: tf.Tensor | int, count: tf.Tensor | int) -> tf.Tensor:
    """Returns `count` bytes from position `at`, or fewer at the end of the data."""
    at, count = tf.cast(at, tf.int64), tf.cast(count, tf.int64)
    return tf.strings.substr(text, tf.minimum(at, _size(text)), tf.maximum(count, 0))


def _size(text: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(text), tf.int64)
