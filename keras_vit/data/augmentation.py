"""Random changes to training images, each fully determined by its seed."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_vit.constants import CROP_AREA
from keras_vit.data import pixels
from keras_vit.preprocessing import Preprocessing


def random_resized_crop(
    image: tf.Tensor,
    seed: tf.Tensor,
    contract: Preprocessing,
    *,
    area: tuple[float, float] = CROP_AREA,
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> tf.Tensor:
    """Cuts out a random rectangle and scales it to the model's size ("Inception crop").

    Args:
        image: Pixels (H, W, C), uint8, [0, 255].
        seed: Two integers (2,).
        contract: Its `size`, `interpolation` and `antialias`.
        area: Smallest and largest share of the image's area, in (0, 1].
        ratio: Smallest and largest width / height of the rectangle.

    Returns:
        Pixels (h, w, C), uint8, with a static shape. The whole image, squashed, if ten attempts
        found no rectangle that fits into it.

    Example:
        >>> image = tf.zeros((50, 37, 3), "uint8")
        >>> random_resized_crop(image, [3, 5], Preprocessing(size=(13, 17))).shape
        TensorShape([13, 17, 3])

    Reference:
        Szegedy et al., "Going deeper with convolutions", section 6,
        https://arxiv.org/abs/1409.4842
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.zeros((0, 0, 4)),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=ratio,
        area_range=area,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    crop = tf.slice(image, begin, size)
    return pixels.fit(crop, dataclasses.replace(contract, resize="squash"))


def random_flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Mirrors an image left to right, with probability one half.

    Args:
        image: Pixels (h, w, C).
        seed: Two integers (2,).

    Returns:
        Pixels (h, w, C).

    Example:
        >>> flipped = [random_flip(tf.reshape([1, 2], (1, 2, 1)), [0, i]) for i in range(9)]
        >>> sorted({tuple(image.numpy().ravel().tolist()) for image in flipped})
        [(1, 2), (2, 1)]
    """
    return tf.image.stateless_random_flip_left_right(image, seed)
