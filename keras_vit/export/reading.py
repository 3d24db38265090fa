"""Encoded images from anyone to pixels, where a bad one costs its neighbours nothing.

All functions are graph-safe, so that they are part of a SavedModel.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from keras_vit import checks
from keras_vit.data import pixels
from keras_vit.export import image_headers
from keras_vit.preprocessing import Preprocessing

_AT_ONCE = 4  # images of a batch that are decoded at a time
SCANS = 100  # of a JPEG


@dataclasses.dataclass(frozen=True)
class Limits:
    """How large an image may be that is decoded for someone unknown.

    Four images of a batch are decoded at a time. One takes 3 bytes a pixel, a progressive JPEG and
    one that is turned upright up to 9, and one that is turned to grey up to 15. A JPEG of more than
    100 scans is not decoded.

    Args:
        max_bytes: Of the file.
        max_pixels: Height times width, read before anything is decoded.

    Raises:
        ValueError: If one is not positive.

    Example:
        >>> Limits(max_pixels=1_000_000).max_bytes
        20000000
    """

    max_bytes: int = 20_000_000
    max_pixels: int = 25_000_000

    def __post_init__(self) -> None:
        checks.positive_int("max_bytes", self.max_bytes)
        checks.positive_int("max_pixels", self.max_pixels)

    @property
    def messages(self) -> tuple[str, ...]:
        """What is said of an image, by the code that `read_each` gives it; the first is good."""
        return (
            "",
            "The image is empty",
            f"The image has more than {self.max_bytes} bytes",
            "The image is no JPEG, PNG, GIF, BMP or WebP",
            f"The image has more than {self.max_pixels} pixels",
            f"The image is a JPEG of more than {SCANS} scans",
            "The image is damaged",
        )


_GOOD, _EMPTY, _LONG, _FOREIGN, _LARGE, _SCANNED, _DAMAGED = range(7)


class Read(NamedTuple):
    """B images as they were read.

    Args:
        pixels: uint8 (B, h, w, C), at the model's size; zeros for a bad image.
        ok: bool (B,), whether each one could be read.
        message: string (B,), what is wrong with it, or nothing.
    """

    pixels: tf.Tensor
    ok: tf.Tensor
    message: tf.Tensor


def read_each(encoded: tf.Tensor, contract: Preprocessing, limits: Limits) -> Read:
    """Decodes, resizes and crops each image that can be, and says of the others why not.

    Args:
        encoded: Image files, string (B,).
        contract: The pixel contract.
        limits: What is not even decoded.

    Returns:
        The pixels and what is wrong.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8"))
        >>> read = read_each(tf.stack([png, "text"]), Preprocessing(size=3), Limits())
        >>> read.pixels.shape, read.ok.numpy(), read.message[1].numpy()[:19]
        (TensorShape([2, 3, 3, 3]), array([ True, False]), b'The image is no JPE')
    """
    kinds, areas = image_headers.formats(encoded), image_headers.areas(encoded)
    lengths = tf.strings.length(encoded)
    codes = tf.fill(tf.shape(encoded), _GOOD)
    for code, fails in (  # the last that fails is said
        (_LARGE, areas > limits.max_pixels),
        (_FOREIGN, kinds == image_headers.FORMATS.index("unknown")),
        (_LONG, lengths > limits.max_bytes),
        (_EMPTY, lengths == 0),
    ):
        codes = tf.where(fails, code, codes)
    shape = (*contract.size, contract.num_channels)
    blank = tf.zeros(shape, tf.uint8)

    def read(
        index: tf.Tensor, image: tf.Tensor, kind: tf.Tensor, code: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        none = tf.constant(0, tf.int64)
        image, area, scans = tf.cond(
            code == _GOOD, lambda: _single(image, kind), lambda: (image, none, none)
        )
        code = tf.where((code == _GOOD) & (scans > SCANS), _SCANNED, code)
        code = tf.where((code == _GOOD) & (area > limits.max_pixels), _LARGE, code)
        fitted = tf.cond(
            code == _GOOD,
            lambda: pixels.fit(pixels.decode(image, contract), contract),
            lambda: blank,
        )
        return index, code, fitted

    # What does not decode raises, and a data set can pass over that without an operator that a
    # server lacks; a lack of memory it passes over as well, and the image is called damaged. A last
    # element keeps the data set from being empty.
    number = tf.size(encoded)
    images = (
        tf.data.Dataset.from_tensor_slices((tf.range(number), encoded, kinds, codes))
        .map(read, num_parallel_calls=_AT_ONCE, deterministic=True)
        .ignore_errors()
        .concatenate(tf.data.Dataset.from_tensors((-1, _DAMAGED, blank)))
        .batch(tf.cast(number, tf.int64) + 1)
    )
    index, found, fitted = (part[:-1] for part in images.get_single_element())
    codes = tf.tensor_scatter_nd_update(
        tf.fill(number[tf.newaxis], _DAMAGED), index[:, tf.newaxis], found
    )
    fitted = tf.scatter_nd(index[:, tf.newaxis], fitted, tf.stack([number, *shape]))
    return Read(
        tf.ensure_shape(fitted, (None, *shape)),
        codes == _GOOD,
        tf.gather(tf.constant(limits.messages), codes),
    )


def _single(image: tf.Tensor, kind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns a file with one image, and its pixels and scans where only a walk tells them."""
    none = tf.constant(0, tf.int64)

    def jpeg() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        sides = tf.cast(tf.image.extract_jpeg_shape(image), tf.int64)
        return image, sides[0] * sides[1], image_headers.scans(image)

    return tf.switch_case(
        tf.where(kind == image_headers.FORMATS.index("jpeg"), 1, 0)
        + tf.where(kind == image_headers.FORMATS.index("gif"), 2, 0),
        [
            lambda: (image, none, none),
            jpeg,
            lambda: (*image_headers.first_frame(image), none),
        ],
    )
