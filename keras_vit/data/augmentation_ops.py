"""Image operations of RandAugment and 3-Augment, for use inside tf.data.

Input and output are uint8 pixels (h, w, 3), [0, 255]; `paste` accepts any dtype. Areas outside the
image are filled with gray, as in the official RandAugment.
"""

from __future__ import annotations

import math

import tensorflow as tf

# Weights of red, green and blue in the luma of a pixel (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)
_GRAY = 128


def blend(degenerate: tf.Tensor, image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends a degenerate image (factor 0) with the image (factor 1); extrapolates above 1."""
    start = tf.cast(degenerate, tf.float32)
    blended = start + factor * (tf.cast(image, tf.float32) - start)
    return tf.saturate_cast(tf.round(blended), tf.uint8)


def luma(image: tf.Tensor) -> tf.Tensor:
    """Returns the luma of every pixel as a float32 tensor of shape (h, w, 1), in [0, 255]."""
    return tf.tensordot(tf.cast(image, tf.float32), _LUMA, axes=1)[..., tf.newaxis]


def color(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Changes the saturation: gray at factor 0, unchanged at 1, more saturated above."""
    return blend(luma(image), image, factor)


def contrast(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Changes the contrast: uniform gray (the mean luma) at factor 0, unchanged at 1."""
    return blend(tf.round(tf.reduce_mean(luma(image))), image, factor)


def brightness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Changes the brightness: black at factor 0, unchanged at 1, brighter above."""
    return blend(tf.zeros((1, 1, 3)), image, factor)


def sharpness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Smooths below factor 1 and sharpens above; the outermost pixels are unchanged."""
    smooth = _convolve(image, tf.constant([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13)
    inside = tf.pad(tf.ones(tf.shape(smooth)[:2]), [[1, 1], [1, 1]])[..., tf.newaxis] > 0
    smooth = tf.pad(smooth, [[1, 1], [1, 1], [0, 0]])
    return blend(tf.where(inside, smooth, tf.cast(image, tf.float32)), image, factor)


def posterize(image: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Keeps the `bits` most significant bits of every value and clears the others."""
    bit_mask = 256 - tf.bitwise.left_shift(1, 8 - bits)
    return tf.bitwise.bitwise_and(image, tf.cast(bit_mask, tf.uint8))


def solarize(image: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Inverts all values greater than or equal to `threshold`, which is in [0, 256]."""
    return tf.where(tf.cast(image, tf.int32) < threshold, image, 255 - image)


def autocontrast(image: tf.Tensor) -> tf.Tensor:
    """Stretches the values of every channel to [0, 255]; constant channels are unchanged."""
    values = tf.cast(image, tf.float32)
    low = tf.reduce_min(values, axis=(0, 1))
    span = tf.reduce_max(values, axis=(0, 1)) - low
    # The division comes last so that the highest value becomes exactly 255.
    stretched = tf.math.divide_no_nan((values - low) * 255, span)
    return tf.cast(tf.where(span > 0, stretched, values), tf.uint8)


def equalize(image: tf.Tensor) -> tf.Tensor:
    """Equalizes the histogram of every channel, like PIL's `ImageOps.equalize`."""
    channels = tf.transpose(tf.cast(image, tf.int32), (2, 0, 1))  # (3, h, w)
    return tf.stack([_equalize(channels[c]) for c in range(3)], axis=-1)


def affine(image: tf.Tensor, *rows: tf.Tensor) -> tf.Tensor:
    """Samples pixel (x, y) bilinearly at (a x + b y + c, d x + e y + f)."""
    transform = tf.stack([tf.cast(number, tf.float32) for number in (*rows, 0.0, 0.0)])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=transform[tf.newaxis],
        output_shape=tf.shape(image)[:2],
        fill_value=float(_GRAY),
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )[0]


def rotate(image: tf.Tensor, degrees: tf.Tensor) -> tf.Tensor:
    """Rotates the image counterclockwise about its center."""
    h, w = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
    angle = degrees * (math.pi / 180)
    cos, sin = tf.cos(angle), tf.sin(angle)
    x, y = (w - 1) / 2, (h - 1) / 2
    return affine(image, cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)


def shear_x(image: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Shears horizontally: shifts every row by `level` times its distance from the top."""
    return affine(image, 1.0, level, 0.0, 0.0, 1.0, 0.0)


def shear_y(image: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Shears vertically: shifts every column by `level` times its distance from the left."""
    return affine(image, 1.0, 0.0, 0.0, level, 1.0, 0.0)


def translate_x(image: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Shifts the image horizontally by a fraction of its width, rounded to whole pixels."""
    return _translate(image, share, axis=1)


def translate_y(image: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Shifts the image vertically by a fraction of its height, rounded to whole pixels."""
    return _translate(image, share, axis=0)


def blur(image: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Applies a Gaussian blur with standard deviation `sigma` (at most 2); reflects borders."""
    radius = 6  # three of the largest standard deviation
    offsets = tf.cast(tf.range(-radius, radius + 1), tf.float32)
    weights = tf.nn.softmax(-tf.square(offsets) / (2 * tf.square(sigma)))
    padded = tf.pad(image, [[radius, radius], [radius, radius], [0, 0]], mode="REFLECT")
    rows = _convolve(padded, weights[:, tf.newaxis])
    return tf.saturate_cast(tf.round(_convolve(rows, weights[tf.newaxis])), tf.uint8)


def paste(image: tf.Tensor, other: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Replaces the given rows and columns of an image with those of another image."""
    h, w, c = image.shape
    # A mask repeated for the channels is much faster than a broadcast mask.
    inside = tf.expand_dims(rows, 1) & tf.repeat(columns, c)  # (h, w * C)
    image, other = (tf.reshape(values, (h, w * c)) for values in (image, other))
    return tf.reshape(tf.where(inside, other, image), (h, w, c))


def _translate(image: tf.Tensor, share: tf.Tensor, axis: int) -> tf.Tensor:
    side = tf.shape(image)[axis]
    shift = tf.cast(tf.round(share * tf.cast(side, tf.float32)), tf.int32)
    padding, begin = [[0, 0]] * 3, [0] * 3
    padding[axis] = [tf.maximum(-shift, 0), tf.maximum(shift, 0)]
    begin[axis] = tf.maximum(shift, 0)
    padded = tf.pad(image, padding, constant_values=tf.cast(_GRAY, tf.uint8))
    return tf.ensure_shape(tf.slice(padded, begin, tf.shape(image)), image.shape)


def _convolve(image: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Convolves every channel with a kernel of shape (a, b), without padding."""
    kernel = tf.tile(kernel[..., tf.newaxis, tf.newaxis], (1, 1, 3, 1))
    values = tf.cast(image, tf.float32)[tf.newaxis]
    return tf.nn.depthwise_conv2d(values, kernel, strides=(1, 1, 1, 1), padding="VALID")[0]


def _equalize(values: tf.Tensor) -> tf.Tensor:
    counts = tf.math.bincount(tf.reshape(values, (-1,)), minlength=256, maxlength=256)
    last = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0))
    step = (tf.reduce_sum(counts) - counts[last]) // 255
    table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
    table = tf.where(step > 0, tf.minimum(table, 255), tf.range(256))
    return tf.cast(tf.gather(table, values), tf.uint8)
