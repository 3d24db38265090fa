"""Decoding, resizing, cropping and scaling of images for a model.

All functions are graph-safe: they run eagerly, inside `tf.data` and inside a SavedModel.
H and W are the image's height and width, h and w the model's, C the number of channels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_vit.constants import MAX_PIXELS
from keras_vit.data import exif, image_headers
from keras_vit.data.exif import one_operator
from keras_vit.preprocessing import Preprocessing

Ratio = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # see `decode_as_stored`
_UNCROPPED = ("squash", "pad")  # values of `Preprocessing.resize` without a crop
_GRAY = 128  # of borders, as in `augmentation_ops`
_MAX_CANVAS = 4 * MAX_PIXELS  # of an image with borders, above which pixels are left out
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic", "lanczos3": "lanczos3"}
# Without antialiasing; bicubic has a precision of 1 / 1024 of a pixel. Not faster than
# `_resized_rows`, but gives the pixels of earlier trainings (docs/decisions/0010).
_RESIZE_OPS = {"bilinear": tf.raw_ops.ResizeBilinear, "bicubic": tf.raw_ops.ResizeBicubic}
_ANTIALIASED = 3 / 2  # shrinkage from which on training uses antialiasing
# Divisors of the size at which a JPEG is decoded.
_RATIOS = (1, 2, 4)
# The minimum ratios of the image's side to the resized side for 1/2 and 1/4. At 1/4 the rounding of
# decoded pixels may change predictions unless six remain for each resized pixel; three suffice
# for training (docs/decisions/0017).
_PREDICTION_MINIMA = (6, 24)
TRAINING_MINIMA = (6, 12)
# Weights of red, green and blue in units of 1 / 65536 (ITU-R BT.601), rounded as PIL rounds them.
_LUMA = (19595, 38470, 7471)


def decode(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Decodes a JPEG, PNG, GIF (first frame), BMP or WebP image.

    The pixels equal those of PIL's conversion to RGB (bit-identical for JPEG); transparency is
    dropped. 16-bit channels are reduced to 8 bits. Animated WebP files and rare kinds of BMP and
    PNG are refused (`image_headers.Head`). The Exif orientation in JPEG, PNG and WebP files is
    applied as by `PIL.ImageOps.exif_transpose` if `exif_orientation` is set.

    Args:
        encoded: The file's bytes, a scalar string.
        preprocessing: Preprocessing; only `channels` and `exif_orientation` are used.

    Returns:
        Pixels (H, W, C), uint8, [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are not a complete image of a known format.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8"))
        >>> decode(png, Preprocessing()).shape
        TensorShape([5, 7, 3])
    """
    stored = decode_as_stored(encoded, preprocessing)
    return exif.turn(stored.pixels, stored.orientation)


class Stored(NamedTuple):
    """Decoded image, possibly downscaled, before its Exif orientation is applied.

    Args:
        pixels: (H / ratio, W / ratio, C), rounded up, uint8 or float, [0, 255].
        sides: H and W, int32 (2,).
        ratio: 1, 2 or 4, and larger for long strips with borders, a scalar int32.
        orientation: Orientation, 1 to 8 as in Exif; 1 for an upright image.
        border: Rows above and columns to the left of the upright image that were added, int32 (2,).
    """

    pixels: tf.Tensor
    sides: tf.Tensor
    ratio: tf.Tensor | int
    orientation: tf.Tensor | int
    border: tf.Tensor | tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, pixels: tf.Tensor, orientation: tf.Tensor | int = 1) -> Stored:
        """Wraps an image of full size as a `Stored` image."""
        return cls(pixels, tf.shape(pixels)[:2], 1, orientation)


def decode_as_stored(
    encoded: tf.Tensor, preprocessing: Preprocessing, ratio: Ratio | None = None
) -> Stored:
    """Decodes an image like `decode`, but does not apply the Exif orientation.

    `resize_and_crop` and `resize_for_training` apply the orientation at the model's size, which is
    faster. `ratio` computes the divisor of a JPEG's size, 1, 2 or 4, from (H, W) and orientation.
    """
    encoded, upright = tf.convert_to_tensor(encoded), tf.constant(1, tf.int64)
    orientation = exif.orientation(encoded) if preprocessing.exif_orientation else upright

    def jpeg() -> tuple[tf.Tensor, ...]:
        def decoded(ratio: int) -> tf.Tensor:
            # decode_image would use a faster DCT with an average error of one gray level.
            return tf.io.decode_jpeg(encoded, 3, ratio, dct_method="INTEGER_ACCURATE")

        sides = tf.image.extract_jpeg_shape(encoded)[:2]
        chosen = tf.constant(1) if ratio is None else ratio(sides, orientation)
        image = tf.switch_case(chosen // 2, [functools.partial(decoded, each) for each in _RATIOS])
        return image, sides, chosen

    def other() -> tuple[tf.Tensor, ...]:
        image = _decode_others(encoded)
        return image, tf.shape(image)[:2], tf.constant(1)

    # Not in parallel: a decoding error would cancel the search for the orientation, and
    # `Dataset.ignore_errors` does not ignore a cancellation.
    with tf.control_dependencies([orientation]):
        image, sides, decoded_at = tf.cond(tf.io.is_jpeg(encoded), jpeg, other)
    image = tf.ensure_shape(image, (None, None, 3))
    if preprocessing.channels == "bgr":
        image = tf.reverse(image, axis=[-1])
    elif preprocessing.channels == "grayscale":
        # Not all decoders support one channel, and their luma weights differ.
        luma = tf.reduce_sum(tf.cast(image, tf.int32) * _LUMA, axis=-1, keepdims=True)
        image = tf.cast((luma + 32768) // 65536, tf.uint8)
    return Stored(image, sides, decoded_at, orientation)


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def _decode_others(encoded: tf.Tensor) -> tf.Tensor:
    def decoded(content: tf.Tensor, channels: int = 3) -> tf.Tensor:
        image = tf.io.decode_image(content, channels, expand_animations=False)
        return tf.ensure_shape(image[..., :3], (None, None, 3))

    head = image_headers.head(encoded)
    content = tf.where(head.refused, b"", encoded)  # an empty file raises

    def bmp() -> tf.Tensor:
        image = decoded(content)
        # The decoder returns 8-bit palette indices as gray levels.
        bits = tf.io.decode_raw(tf.strings.substr(encoded, 28, 2), tf.uint8, fixed_length=2)[0]
        palette = image_headers.bmp_palette(encoded)
        return tf.cond(
            bits == 8, lambda: tf.gather(palette, tf.cast(image[..., 0], tf.int32)), lambda: image
        )

    branches = {
        "webp": lambda: decoded(content, channels=0),  # channels=3 fails on transparency
        "gif": lambda: decoded(image_headers.first_frame(encoded)[0]),
        "bmp": bmp,
    }
    return tf.switch_case(
        head.format,
        [branches.get(name, lambda: decoded(content)) for name in image_headers.FORMATS],
    )


def resize_and_crop(image: tf.Tensor | Stored, preprocessing: Preprocessing) -> tf.Tensor:
    """Resizes and crops an image to the model's size, and applies its Exif orientation.

    Args:
        image: Pixels (H, W, C), uint8 or float, [0, 255], of an upright image, or a `Stored`
            image.
        preprocessing: Preprocessing; only the fields for resizing and cropping are used.

    Returns:
        Pixels (h, w, C), uint8, with a static shape.

    Examples:
        >>> image = tf.zeros((50, 37, 3), "uint8")
        >>> resize_and_crop(image, Preprocessing(size=(13, 17))).shape
        TensorShape([13, 17, 3])
    """
    stored = padded(image if isinstance(image, Stored) else Stored.of(image), preprocessing)
    if preprocessing.interpolation == "nearest":  # the only asymmetric one
        pixels, sides, ratio, orientation, _ = stored
        stored = Stored(exif.turn(pixels, orientation), exif.swapped(sides, orientation), ratio, 1)
    orientation = stored.orientation
    size = tf.constant(preprocessing.size)
    sides = exif.swapped(stored.sides, orientation)  # (H, W) of the upright image
    scaled, offset = scaled_size(sides, preprocessing)
    if preprocessing.interpolation == "nearest":
        resized = stored.pixels
        for axis, side in enumerate(preprocessing.size):
            centers = tf.range(side) + offset[axis]
            # floor((i + 1/2) * side / scaled), without rounding errors
            nearest = (2 * tf.cast(centers, tf.int64) + 1) * tf.cast(sides[axis], tf.int64)
            nearest //= 2 * tf.cast(scaled[axis], tf.int64)
            resized = tf.gather(resized, nearest // tf.cast(stored.ratio, tf.int64), axis=axis)
    else:
        offset = exif.mirrored(offset, scaled - size, orientation)
        size, scale, offset = (
            exif.swapped(each, orientation) for each in (size, scaled / sides, offset)
        )
        ratio = tf.cast(stored.ratio, scale.dtype)
        # Only the pixels inside the crop are computed: no huge image between resize and crop.
        resized = stored.pixels
        for axis in (0, 1):
            step, start = scale[axis] * ratio, offset[axis]
            resized = _resized_rows(resized, size[axis], step, start, preprocessing)
        # Decoded at 1 / ratio, a pixel is the mean of ratio pixels along each axis, a box filter of
        # variance (ratio^2 - 1) / 12.
        blur = tf.cast((ratio**2 - 1) / 12 * scale**2, tf.float32)
        resized = tf.cond(ratio > 1, lambda: _sharpened(resized, blur), lambda: resized)
    return _rounded(exif.turn(resized, orientation), preprocessing)


def padded(stored: Stored, preprocessing: Preprocessing) -> Stored:
    """Adds gray borders for the aspect ratio of the model's input if `resize` is `"pad"`."""
    if preprocessing.resize != "pad":
        return stored
    pixels, _, ratio, orientation, _ = stored
    size = exif.swapped(tf.constant(preprocessing.size), orientation)
    sides = tf.shape(pixels)[:2]
    canvas = padded_sides(sides, size)
    # A strip of 60000 x 1 pixels would need 11 GB.
    area = tf.reduce_prod(tf.cast(canvas, tf.float32))
    divisor = tf.cast(tf.sqrt(area / _MAX_CANVAS), tf.int32) + 1
    pixels, ratio = pixels[::divisor, ::divisor], ratio * divisor
    sides = tf.shape(pixels)[:2]
    canvas = padded_sides(sides, size)
    before = (canvas - sides) // 2
    borders = tf.pad(tf.stack([before, canvas - sides - before], axis=1), [[0, 1], [0, 0]])
    pixels = tf.pad(pixels, borders, constant_values=tf.cast(_GRAY, pixels.dtype))
    above, rest = (exif.swapped(each, orientation) for each in (before, canvas - sides))
    border = exif.mirrored(above, rest, orientation) * ratio
    return Stored(pixels, canvas * ratio, ratio, orientation, border)


def padded_sides(sides: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Enlarges `sides` (H, W) to (W h / w, H w / h), the aspect ratio of `size`, where larger."""
    return tf.maximum(sides, -(-tf.reverse(sides, [0]) * size // tf.reverse(size, [0])))


def _resized_rows(
    image: tf.Tensor,
    size: tf.Tensor,
    scale: tf.Tensor,
    offset: tf.Tensor,
    preprocessing: Preprocessing,
) -> tf.Tensor:
    """Scales an image (H, W, C) along H and returns `size` rows from `offset`, as (W, size, C).

    For both axes this is bit-identical to one `ScaleAndTranslate` and takes half the time: the
    operator is slow along W, where it processes C values at a time instead of W * C.
    """
    resized = tf.raw_ops.ScaleAndTranslate(
        images=tf.reshape(image, (1, tf.shape(image)[0], 1, -1)),
        size=(size, 1),
        scale=tf.cast((scale, 1), tf.float32),
        translation=-tf.cast((offset, 0), tf.float32),
        kernel_type=_KERNELS[preprocessing.interpolation],
        antialias=preprocessing.antialias,
    )
    resized = tf.reshape(resized, (size, -1, preprocessing.num_channels))
    return tf.transpose(resized, (1, 0, 2))


@one_operator
def _sharpened(image: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Subtracts half the second derivative times the variance (2,) of a blur of an image."""
    down = tf.concat([image[:1], image[:-1]], 0) + tf.concat([image[1:], image[-1:]], 0)
    across = tf.concat([image[:, :1], image[:, :-1]], 1)
    across += tf.concat([image[:, 1:], image[:, -1:]], 1)
    return image - variance[0] / 2 * (down - 2 * image) - variance[1] / 2 * (across - 2 * image)


def resize_for_training(image: tf.Tensor | Stored, preprocessing: Preprocessing) -> tf.Tensor:
    """Resizes a whole image to the model's size, like `resize_and_crop` with `"squash"`.

    Bilinear and bicubic filters skip antialiasing if the image shrinks to no less than two thirds,
    as in earlier versions (docs/decisions/0010).
    """
    squashed = dataclasses.replace(preprocessing, resize="squash")
    stored = image if isinstance(image, Stored) else Stored.of(image)
    if preprocessing.interpolation not in _RESIZE_OPS:
        return resize_and_crop(stored, squashed)
    image, orientation = stored.pixels, stored.orientation
    size = exif.swapped(tf.constant(preprocessing.size), orientation)

    def resize_directly() -> tf.Tensor:
        resize = _RESIZE_OPS[preprocessing.interpolation]
        resized = resize(images=image[tf.newaxis], size=size, half_pixel_centers=True)
        return _rounded(exif.turn(resized[0], orientation), preprocessing)

    if not preprocessing.antialias:
        return resize_directly()
    return tf.cond(
        tf.reduce_max(tf.shape(image)[:2] / size) > _ANTIALIASED,
        lambda: resize_and_crop(stored, squashed),
        resize_directly,
    )


def _rounded(pixels: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    # PIL rounds half up; the cast truncates.
    pixels = tf.saturate_cast(tf.cast(pixels, tf.float32) + 0.5, tf.uint8)
    return tf.ensure_shape(pixels, (*preprocessing.size, preprocessing.num_channels))


def _cover(preprocessing: Preprocessing) -> tuple[int, int]:
    """Returns the size before the center crop, which is a lower bound if `resize="crop"`."""
    fraction = 1.0 if preprocessing.resize in _UNCROPPED else preprocessing.crop_fraction
    height, width = preprocessing.size
    return int(height / fraction), int(width / fraction)


def scaled_size(sides: tf.Tensor, preprocessing: Preprocessing) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the size of a resized image, and the first row and column of its center crop."""
    size = tf.constant(preprocessing.size)
    if preprocessing.resize in _UNCROPPED:
        return size, tf.constant([0, 0])
    cover = tf.constant(_cover(preprocessing))
    scaled = cover if preprocessing.resize == "squash_crop" else _covering(sides, cover)
    # Rounds half to even, as Python's `round` does in torchvision's CenterCrop.
    return scaled, tf.cast(tf.round((scaled - size) / 2), tf.int32)


def _covering(sides: tf.Tensor, cover: tf.Tensor) -> tf.Tensor:
    """Returns the smallest size that covers `cover` and keeps the image's aspect ratio."""
    wide, cover = tf.cast(sides, tf.int64), tf.cast(cover, tf.int64)
    fits_height = cover[0] * wide[1] >= cover[1] * wide[0]
    scaled = tf.where(fits_height, wide * cover[0] // wide[0], wide * cover[1] // wide[1])
    return tf.cast(scaled, tf.int32)


def scale(pixels: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Normalizes pixels with the mean and standard deviation of the preprocessing.

    Args:
        pixels: (..., C), uint8 or float, [0, 255].
        preprocessing: Preprocessing; only `mean` and `std` are used.

    Returns:
        `(pixels / 255 - mean) / std`, float32, of the same shape.

    Examples:
        >>> scale(tf.constant([[0, 255, 0]], "uint8"), Preprocessing()).numpy()
        array([[-1.,  1., -1.]], dtype=float32)
    """
    return preprocessing.scale(tf.cast(pixels, tf.float32))


def prepare(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Converts an encoded image to model input: decodes, resizes, crops and scales it.

    Args:
        encoded: The file's bytes, a scalar string.
        preprocessing: The preprocessing.

    Returns:
        Model input (h, w, C), float32, with a static shape.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are not a complete image of a known format.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8"))
        >>> prepare(png, Preprocessing(size=3)).shape
        TensorShape([3, 3, 3])
    """
    return scale(decode_resized(encoded, preprocessing), preprocessing)


def decode_resized(encoded: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Decodes, resizes and crops an image file to upright uint8 pixels (h, w, C)."""
    stored = decode_as_stored(encoded, preprocessing, ratio_for_resizing(preprocessing))
    return resize_and_crop(stored, preprocessing)


def ratio_for_resizing(preprocessing: Preprocessing) -> Ratio:
    """Returns the `ratio` argument of `decode_as_stored` for use with `resize_and_crop`."""
    longest = max(_cover(preprocessing))
    return lambda sides, orientation: ratio_of(
        sides, tf.reduce_min(sides) / longest, _PREDICTION_MINIMA, preprocessing
    )


def ratio_of(
    sides: tf.Tensor, shrinkage: tf.Tensor, minima: tuple[int, int], preprocessing: Preprocessing
) -> tf.Tensor:
    """Returns the divisor, 1, 2 or 4, for a JPEG that resizing shrinks by a factor.

    It is at least the one that is required to decode at most `MAX_PIXELS`.
    """
    allowed = tf.reduce_prod(tf.cast(sides, tf.int64)) > (MAX_PIXELS, 4 * MAX_PIXELS)
    if preprocessing.dct_scaling and preprocessing.antialias:
        allowed |= (shrinkage >= minima) & (preprocessing.interpolation != "nearest")
    return tf.gather(_RATIOS, tf.reduce_sum(tf.cast(allowed, tf.int32)))
