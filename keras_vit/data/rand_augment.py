"""RandAugment, 3-Augment and color jitter, fully determined by a seed."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_vit.data import augmentation_ops

# Magnitude of full strength, as in the papers' figures.
MAX_MAGNITUDE = 10.0
# Minimum image side for the blur of 3-Augment, which reflects six pixels at the border.
MIN_SIDE = 7


def rand_augment(
    image: tf.Tensor,
    seed: tf.Tensor,
    *,
    num_ops: int,
    magnitude: float,
    magnitude_std: float = 0.0,
    increasing: bool = False,
) -> tf.Tensor:
    """Applies randomly chosen operations in sequence ("RandAugment").

    The paper's 14 operations: identity, autocontrast, equalize, rotate (30 degrees at magnitude
    10), solarize, color, posterize, contrast, brightness, sharpness, shear (0.3) and translate
    (45% of the side) along x or y; rotations, shears and translations have a random sign.

    Reference: https://arxiv.org/abs/1909.13719; with the ranges of
    https://github.com/tensorflow/tpu/blob/master/models/official/efficientnet/autoaugment.py
    """
    shape = image.shape
    for key in tf.unstack(tf.random.split(seed, num_ops)):
        op_seed, sign_seed, noise_seed = tf.unstack(tf.random.split(key, 3))
        strength = tf.constant(magnitude / MAX_MAGNITUDE)
        if magnitude_std:
            deviation = tf.random.stateless_normal((), noise_seed) * magnitude_std / MAX_MAGNITUDE
            strength = tf.clip_by_value(strength + deviation, 0.0, 1.0)
        sign = tf.where(tf.random.stateless_uniform((), sign_seed) < 0.5, -1.0, 1.0)
        branches = _branches(image, strength, sign, increasing)
        index = tf.random.stateless_uniform((), op_seed, 0, len(branches), tf.int32)
        image = tf.ensure_shape(tf.switch_case(index, branches), shape)
    return image


def three_augment(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Applies grayscale, solarize (at 128) or blur with equal probability ("3-Augment").

    Reference: section 3.2 of https://arxiv.org/abs/2204.07118; the blur's standard deviation in
    [0.1, 2] pixels is that of https://github.com/facebookresearch/deit/blob/main/augment.py
    """
    op_seed, sigma_seed = tf.unstack(tf.random.split(seed, 2))
    sigma = tf.random.stateless_uniform((), sigma_seed, 0.1, 2.0)
    changed = tf.switch_case(
        tf.random.stateless_uniform((), op_seed, 0, 3, tf.int32),
        [
            lambda: augmentation_ops.color(image, 0.0),
            lambda: augmentation_ops.solarize(image, 128),
            lambda: augmentation_ops.blur(image, sigma),
        ],
    )
    return tf.ensure_shape(changed, image.shape)


def color_jitter(image: tf.Tensor, seed: tf.Tensor, *, strength: float) -> tf.Tensor:
    """Scales brightness, contrast and color by factors in [1 - strength, 1 + strength]."""
    low = max(0.0, 1 - strength)
    factors = tf.unstack(tf.random.stateless_uniform((3,), seed, low, 1 + strength))
    image = augmentation_ops.brightness(image, factors[0])
    image = augmentation_ops.contrast(image, factors[1])
    return augmentation_ops.color(image, factors[2])


def _branches(
    image: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor, increasing: bool
) -> list[Callable[[], tf.Tensor]]:
    factor = 0.1 + 1.8 * strength
    bits, threshold = tf.cast(4 * strength, tf.int32), tf.cast(256 * strength, tf.int32)
    if increasing:
        factor = tf.maximum(0.1, 1 + sign * 0.9 * strength)
        bits, threshold = 4 - bits, 256 - threshold
    # Clipped for magnitudes above 10.
    bits, threshold = tf.clip_by_value(bits, 0, 8), tf.clip_by_value(threshold, 0, 256)
    return [
        lambda: image,
        lambda: augmentation_ops.autocontrast(image),
        lambda: augmentation_ops.equalize(image),
        lambda: augmentation_ops.rotate(image, sign * 30 * strength),
        lambda: augmentation_ops.solarize(image, threshold),
        lambda: augmentation_ops.color(image, factor),
        lambda: augmentation_ops.posterize(image, bits),
        lambda: augmentation_ops.contrast(image, factor),
        lambda: augmentation_ops.brightness(image, factor),
        lambda: augmentation_ops.sharpness(image, factor),
        lambda: augmentation_ops.shear_x(image, sign * 0.3 * strength),
        lambda: augmentation_ops.shear_y(image, sign * 0.3 * strength),
        lambda: augmentation_ops.translate_x(image, sign * 0.45 * strength),
        lambda: augmentation_ops.translate_y(image, sign * 0.45 * strength),
    ]
