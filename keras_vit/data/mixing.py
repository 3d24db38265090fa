"""MixUp and CutMix between neighboring images in a batch.

Letters: B batch, an even number; h, w, C image height, width, channels; K classes.

Example i is mixed with example i + 1 if i is even, with i - 1 if it is odd. The order of a batch is
random, so that mixing neighbors is as random as mixing arbitrary pairs, and a worker whose shard of
a batch has an even size needs no other images.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_vit.data import augmentation_ops


def mix(
    images: tf.Tensor,
    labels: tf.Tensor,
    seeds: tf.Tensor,
    *,
    mixup: float,
    cutmix: float,
    probability: float = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixes each example with its neighbor, using MixUp or CutMix with equal probability.

    MixUp computes lam * example + (1 - lam) * neighbor; CutMix pastes a rectangle of the neighbor,
    of 1 - lam of the area, into the example. Labels are mixed with the same weights. lam follows
    Beta(a, a) with a = `mixup` or `cutmix`, of which one or both are positive.

    Reference: https://arxiv.org/abs/1710.09412 and https://arxiv.org/abs/1905.04899
    """
    indices = tf.range(tf.shape(images)[0])
    neighbors = tf.bitwise.bitwise_xor(indices, 1)
    mixup_probability = 0.5 if mixup and cutmix else float(mixup > 0)

    def mix_example(values: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
        index, neighbor, seed = values
        image, other = images[index], images[neighbor]
        apply_seed, method_seed, mix_seed = tf.unstack(tf.random.split(seed, 3))

        def by_mixup() -> tuple[tf.Tensor, tf.Tensor]:
            lam = _beta(mix_seed, mixup)
            return lam * image + (1 - lam) * other, lam

        def by_cutmix() -> tuple[tf.Tensor, tf.Tensor]:
            return _cut(image, other, mix_seed, cutmix)

        def by_either() -> tuple[tf.Tensor, tf.Tensor]:
            use_mixup = tf.random.stateless_uniform((), method_seed) < mixup_probability
            return tf.cond(use_mixup, by_mixup, by_cutmix)

        apply = tf.random.stateless_uniform((), apply_seed) < probability
        return tf.cond(apply, by_either, lambda: (image, tf.ones(())))

    # One image at a time, so that the image and its neighbor stay in the processor's cache.
    mixed, lam = tf.map_fn(
        mix_example,
        (indices, neighbors, tf.convert_to_tensor(seeds)),
        fn_output_signature=(tf.TensorSpec(images.shape[1:], images.dtype), tf.float32),
    )
    lam = lam[:, tf.newaxis]
    others = tf.gather(labels, neighbors)
    return tf.ensure_shape(mixed, images.shape), lam * labels + (1 - lam) * others


def _beta(seed: tf.Tensor, concentration: float) -> tf.Tensor:
    """Samples a Beta variable X / (X + Y), using the logarithms of two Gamma variables.

    For a small concentration a, X often underflows in float32. X is distributed as Z u^(1 / a),
    where Z is a Gamma variable of concentration a + 1 and u is uniform.
    """
    gamma_seed, uniform_seed = tf.unstack(tf.random.split(seed, 2))
    z = tf.random.stateless_gamma((2,), gamma_seed, concentration + 1)
    u = tf.random.stateless_uniform((2,), uniform_seed, minval=np.finfo(np.float32).tiny)
    logarithms = tf.math.log(z) + tf.math.log(u) / concentration
    return tf.sigmoid(logarithms[0] - logarithms[1])


def _cut(
    image: tf.Tensor, other: tf.Tensor, seed: tf.Tensor, concentration: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pastes a random rectangle of `other` into `image`; also returns lam, the rest."""
    center_seed, size_seed = tf.unstack(tf.random.split(seed, 2))
    h, w = image.shape[0], image.shape[1]
    side = tf.sqrt(1 - _beta(size_seed, concentration))
    y, x = tf.unstack(tf.random.stateless_uniform((2,), center_seed))
    rows = _inside(h, y * h, side * h)
    columns = _inside(w, x * w, side * w)
    height, width = (tf.reduce_sum(tf.cast(inside, tf.float32)) for inside in (rows, columns))
    return augmentation_ops.paste(image, other, rows, columns), 1 - height * width / (h * w)


def _inside(side: int, center: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.range(side, dtype=tf.float32) + 0.5 - center) < length / 2
