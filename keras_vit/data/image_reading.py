"""Decoding of untrusted images within size limits.

All functions are graph-safe, for input pipelines and SavedModels. B is the
number of files; h and w are the model's image size, C the number of channels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_vit.arguments import PositiveInt, check_kinds
from keras_vit.constants import LARGE_PIXELS, MAX_PIXELS
from keras_vit.data import exif, image_headers
from keras_vit.data.decode_and_resize import (
    Ratio,
    Stored,
    decode_as_stored,
    decode_resized,
    ratio_for_resizing,
    resize_and_crop,
)
from keras_vit.data.exif import one_operator
from keras_vit.preprocessing import Preprocessing

_PARALLEL_CALLS = 4  # number of images of a batch that are decoded in parallel
_MAX_SMALL_PIXELS = 1 << 21  # pixels; eight such images take 50 MB
MAX_SCANS = 100  # of a JPEG
REFUSED = (  # images on which the decoder fails, in the order of `image_headers.FORMATS`
    "a CMYK JPEG without an Adobe marker",
    "a PNG whose header does not come first",
    "a GIF whose first frame does not cover the whole image",
    "a BMP that is compressed, has fewer than 8 or exactly 16 bits per pixel, or is of a rare kind",
    "an animated WebP",
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on the size of images that may be decoded.

    Images of up to 16 megapixels are decoded four at a time, larger images one at a time. An image
    takes 3 bytes per pixel, a progressive JPEG up to 9, and an image converted to gray up to 15.
    A JPEG of more than 100 scans is not decoded.

    Args:
        max_bytes: Maximum size of the file.
        max_pixels: Maximum number of decoded pixels, checked before decoding; by default the size
            of an image of a 64-megapixel camera. JPEGs decoded at 1/2 or 1/4 of their sides may
            have 4 or 16 times as many, unless they are progressive.

    Raises:
        ValueError: If a limit is not positive.

    Examples:
        >>> Limits(max_pixels=1_000_000).max_bytes
        20000000
    """

    max_bytes: PositiveInt = 20_000_000
    max_pixels: PositiveInt = MAX_PIXELS

    def __post_init__(self) -> None:
        check_kinds(self)

    @property
    def messages(self) -> tuple[str, ...]:
        """Error messages, indexed by `Header.code`; empty for a good image.

        For an image with too many pixels, the message follows the height and width.
        """
        return (
            "",
            "The image is empty",
            f"The image has more than {self.max_bytes} bytes",
            "The image is not a JPEG, PNG, GIF, BMP or WebP",
            f" pixels, more than the limit of {self.max_pixels}",
            f"The image is a JPEG with more than {MAX_SCANS} scans",
            "The image is damaged",
            *(f"The image is {kind}" for kind in REFUSED),
        )


LOCAL = Limits(max_bytes=2**31 - 1)  # of local files
_RATIO_FOR_LIMIT = ratio_for_resizing(
    Preprocessing(dct_scaling=False)
)  # the least that the limit requires
# Indices into `Limits.messages`.
GOOD, _EMPTY, _TOO_MANY_BYTES, _UNKNOWN_FORMAT = range(4)
_TOO_MANY_PIXELS, _TOO_MANY_SCANS, DAMAGED = range(4, 7)


class Header(NamedTuple):
    """Outcome of checking an image's header, with the image's size.

    Args:
        code: Index into `Limits.messages`, a scalar int32.
        height: Height in pixels, a scalar int64; 0 if unknown.
        width: Width in pixels.
    """

    code: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor


class Read(NamedTuple):
    """Batch of decoded images, with an error message for each undecodable image.

    Args:
        pixels: uint8 (B, h, w, C), at the model's size; zeros for a bad image.
        ok: bool (B,), whether each image was decoded.
        message: string (B,), the error message of each image; empty if it was decoded.
    """

    pixels: tf.Tensor
    ok: tf.Tensor
    message: tf.Tensor


def read_header(encoded: tf.Tensor, limits: Limits, ratio: Ratio) -> Header:
    """Checks an image's header against the size limits; `ratio` is that of `decode_as_stored`."""
    length = tf.strings.length(encoded)

    def jpeg() -> tuple[tf.Tensor, ...]:
        shape = tf.image.extract_jpeg_shape(encoded)
        refused = tf.cond(
            shape[2] == 4, lambda: image_headers.lacks_adobe(encoded), lambda: tf.constant(False)
        )
        format = tf.constant(image_headers.FORMATS.index("jpeg"))
        has_too_many_scans = image_headers.has_more_scans(encoded, MAX_SCANS)
        sides = tf.cast(shape[:2], tf.int64)
        divisor = tf.cond(
            tf.reduce_prod(sides) > limits.max_pixels,
            lambda: tf.where(
                image_headers.keeps_coefficients(encoded, shape[2]), 1, ratio(shape[:2], 1)
            ),
            lambda: 1,
        )
        decoded_sides = -(-sides // tf.cast(divisor, tf.int64))
        return sides, decoded_sides, has_too_many_scans, format, refused

    def other() -> tuple[tf.Tensor, ...]:
        sides, format, refused = _other_header(encoded)
        return sides, sides, tf.constant(False), format, refused

    is_jpeg = tf.io.is_jpeg(encoded) & (length <= limits.max_bytes)
    sides, decoded_sides, has_too_many_scans, format, refused = tf.cond(is_jpeg, jpeg, other)
    code = tf.constant(GOOD)
    for failure_code, fails in (  # a later row takes precedence
        (_TOO_MANY_SCANS, has_too_many_scans),
        (_TOO_MANY_PIXELS, tf.reduce_prod(decoded_sides) > limits.max_pixels),
        (DAMAGED + format, refused),
        (_UNKNOWN_FORMAT, format == image_headers.FORMATS.index("unknown")),
        (_TOO_MANY_BYTES, length > limits.max_bytes),
        (_EMPTY, length == 0),
    ):
        code = tf.where(fails, failure_code, code)
    return Header(code, sides[0], sides[1])


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def _other_header(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the size, the format, and whether the decoder fails, for an image other than JPEG."""
    format, screen, refused = image_headers.head(encoded)
    frame, corner = tf.cond(
        format == image_headers.FORMATS.index("gif"),
        lambda: image_headers.first_frame(encoded)[1:],
        lambda: (screen, tf.zeros_like(screen)),
    )
    is_partial = tf.reduce_all(frame > 0) & tf.reduce_any((frame < screen) | (corner > 0))
    return tf.maximum(screen, frame), format, is_partial | refused


def message(header: Header, limits: Limits) -> tf.Tensor:
    """Returns the error message for each header, as a string tensor."""
    text = tf.gather(tf.constant(limits.messages), header.code)
    size = [tf.strings.as_string(side) for side in (header.height, header.width)]
    with_size = tf.strings.join(["The image has ", size[0], " x ", size[1], text])
    return tf.where(header.code == _TOO_MANY_PIXELS, with_size, text)


def decode_large_serially(
    encoded: tf.Tensor,
    preprocessing: Preprocessing,
    ratio: Ratio | None = None,
    area: tf.Tensor | None = None,
) -> Stored:
    """Like `decode_as_stored`, but decodes images with a large `area`, in pixels, one at a time."""

    @one_operator
    def decode_large(encoded: tf.Tensor) -> Stored:
        return _large_image_lock().execute(lambda: decode_as_stored(encoded, preprocessing, ratio))

    return tf.cond(
        (_area(encoded) if area is None else area) > LARGE_PIXELS,
        lambda: decode_large(encoded),
        lambda: decode_as_stored(encoded, preprocessing, ratio),
    )


def _area(encoded: tf.Tensor) -> tf.Tensor:
    """Returns an image's height times width, as a scalar int64."""
    sides = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.int64),
        lambda: _other_header(encoded)[0],
    )
    return tf.reduce_prod(sides)


@functools.cache
def _large_image_lock() -> tf.CriticalSection:
    with tf.init_scope(), tf.device("CPU"):
        return tf.CriticalSection(name="large_images")


def read_each(encoded: tf.Tensor, preprocessing: Preprocessing, limits: Limits) -> Read:
    """Decodes, resizes and crops a batch of images, with error messages for bad images."""
    shape = (*preprocessing.size, preprocessing.num_channels)
    blank = tf.zeros(shape, tf.uint8)
    zero = tf.constant(0, tf.int64)

    def read(encoded: tf.Tensor, parallel_calls: int, large: bool) -> tuple[tf.Tensor, ...]:
        """Returns codes and sizes of all images, and pixels of either the small or `large` ones."""

        def read_image(image: tf.Tensor) -> tuple[tf.Tensor, ...]:
            header = read_header(image, limits, ratio_for_resizing(preprocessing))
            is_requested = (header.height * header.width > LARGE_PIXELS) == large
            pixels = tf.cond(
                (header.code == GOOD) & is_requested,
                lambda: decode_resized(image, preprocessing),
                lambda: blank,
            )
            return *header, pixels

        damaged = (DAMAGED, zero, zero, blank)
        index, *results = _successful_results(encoded, read_image, damaged, parallel_calls)
        # The last result, that of a damaged image, is the result of all undecodable images.
        last = tf.size(index) - 1
        rows = tf.fill(tf.shape(encoded), last)
        rows = tf.tensor_scatter_nd_update(rows, index[:-1, tf.newaxis], tf.range(last))
        return tuple(tf.gather(result, rows) for result in results)

    code, height, width, pixels = read(encoded, _PARALLEL_CALLS, large=False)
    is_large = (code == GOOD) & (height * width > LARGE_PIXELS)

    @one_operator
    def read_large(
        encoded: tf.Tensor, is_large: tf.Tensor, code: tf.Tensor, pixels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        large_code, _, _, large_pixels = read(tf.boolean_mask(encoded, is_large), 1, large=True)
        indices = tf.where(is_large)
        return (
            tf.tensor_scatter_nd_update(code, indices, large_code),
            tf.tensor_scatter_nd_update(pixels, indices, large_pixels),
        )

    code, pixels = tf.cond(
        tf.reduce_any(is_large),
        lambda: read_large(encoded, is_large, code, pixels),
        lambda: (code, pixels),
    )
    return Read(
        tf.ensure_shape(pixels, (None, *shape)),
        code == GOOD,
        message(Header(code, height, width), limits),
    )


def upright_sides(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns the height and width (2,), int32, of an image with its Exif orientation applied."""
    header = read_header(encoded, LOCAL, ratio_for_resizing(preprocessing))
    sides = tf.cast(tf.stack([header.height, header.width]), tf.int32)
    orientation = exif.orientation(encoded) if preprocessing.exif_orientation else 1
    return exif.swapped(sides, orientation)


def decode_checked(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Checks an image's header, then decodes, resizes and crops the image, or raises an error."""
    ratio = ratio_for_resizing(preprocessing)
    header = read_header(encoded, LOCAL, ratio)

    @one_operator
    def fail(header: Header) -> tf.Tensor:
        failure = tf.debugging.Assert(False, [message(header, LOCAL)])
        with tf.control_dependencies([failure]):
            return tf.zeros((*preprocessing.size, preprocessing.num_channels), tf.uint8)

    def decode() -> tf.Tensor:
        area = header.height * header.width
        stored = decode_large_serially(encoded, preprocessing, ratio, area)
        return resize_and_crop(stored, preprocessing)

    return tf.cond(header.code == GOOD, decode, lambda: fail(header))


def _successful_results(
    encoded: tf.Tensor,
    compute: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    default: tuple[Any, ...],
    parallel_calls: int,
) -> list[tf.Tensor]:
    """Returns the index and results of each image on which `compute` succeeds, then `default`."""
    num_images = tf.size(encoded)

    @tf.autograph.experimental.do_not_convert
    def with_index(index: tf.Tensor, image: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return index, *compute(image)

    # `ignore_errors` skips undecodable images without operators that TensorFlow Serving lacks. It
    # also skips images on out-of-memory errors, which are then reported as damaged. The last
    # element keeps the dataset from being empty.
    images = (
        tf.data.Dataset.from_tensor_slices((tf.range(num_images), encoded))
        .map(with_index, num_parallel_calls=parallel_calls)
        .ignore_errors()
        .concatenate(tf.data.Dataset.from_tensors((-1, *default)))
        .batch(tf.cast(num_images, tf.int64) + 1)
    )
    options = tf.data.Options()  # no graph optimization, which each call would repeat
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return images.with_options(options).get_single_element()


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def inspect(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Header]:
    """Returns upright pixels (empty if decoding fails), whether they were turned, and a header."""
    # A dataset can ignore decoding errors; from Python 3.12 on, TensorFlow hangs if two threads
    # raise an error.
    zero = tf.constant(0, tf.int64)
    damaged = (tf.zeros((0, 0, 3), tf.uint8), False, Header(tf.constant(DAMAGED), zero, zero))

    @tf.autograph.experimental.do_not_convert
    def inspect_image(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Header]:
        return _inspect_limited(image, 16 * LOCAL.max_pixels)  # a JPEG may be decoded at 1/4

    images = tf.data.Dataset.from_tensors(encoded).map(inspect_image)
    images = images.ignore_errors().concatenate(tf.data.Dataset.from_tensors(damaged))
    return images.take(1).get_single_element()


@one_operator(input_signature=[tf.TensorSpec((None,), tf.string)])
def inspect_small(encoded: tf.Tensor) -> list[tf.Tensor]:
    """Decodes a batch of small images like `inspect`, but faster."""

    def inspect_image(image: tf.Tensor) -> tuple[tf.Tensor, ...]:
        pixels, oriented, _ = _inspect_limited(image, _MAX_SMALL_PIXELS)
        return tf.shape(pixels)[:2], oriented, tf.io.serialize_tensor(pixels)

    default = (tf.zeros(2, tf.int32), tf.constant(False), tf.constant(b""))
    results = _successful_results(encoded, inspect_image, default, parallel_calls=1)
    return [result[:-1] for result in results]


def _inspect_limited(encoded: tf.Tensor, max_pixels: int) -> tuple[tf.Tensor, tf.Tensor, Header]:
    """Inspects an image like `inspect`; returns no pixels of images above `max_pixels`."""
    header = read_header(encoded, LOCAL, _RATIO_FOR_LIMIT)
    area = header.height * header.width

    def decode() -> tuple[tf.Tensor, tf.Tensor]:
        stored = decode_large_serially(encoded, Preprocessing(), _RATIO_FOR_LIMIT, area)
        return stored.pixels, stored.orientation

    image, orientation = tf.cond(
        (header.code == GOOD) & (area <= max_pixels),
        decode,
        lambda: (tf.zeros((0, 0, 3), tf.uint8), tf.constant(1, tf.int64)),
    )
    sides = tf.unstack(exif.swapped(tf.stack(header[1:]), orientation))
    return exif.turn(image, orientation), orientation != 1, Header(header.code, *sides)
