"""Random augmentation of single training images, fully determined by a seed.

Letters: H, W, C height, width, channels of an image; h, w of the model input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vit import arguments
from keras_vit.arguments import Count, Fraction, NonNegative, PositiveInt
from keras_vit.constants import CROP_AREA, CROP_RATIO
from keras_vit.data import augmentation_ops, exif
from keras_vit.data.decode_and_resize import (
    TRAINING_MINIMA,
    Stored,
    padded,
    ratio_of,
    resize_for_training,
)
from keras_vit.data.geometry import Geometry, random_box
from keras_vit.data.rand_augment import color_jitter, rand_augment, three_augment
from keras_vit.preprocessing import Preprocessing


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Settings of the random augmentation, in order of application (except for `layers`).

    Args:
        crop_area: Smallest and largest fraction of the image's area in a random crop, in (0, 1].
            A crop has an aspect ratio of 3/4 to 4/3, relative to that of the model's input, and is
            resized to the model's size.
        flip: Whether images are flipped at random; never in a dataset such as digits, where
            a flipped image no longer shows its class (`Examples.flip_safe`).
        rand_augment_ops: Number of operations that RandAugment applies to an image; 0 for none.
        rand_augment_magnitude: Their magnitude, 0 or more; 10 is full strength.
        rand_augment_std: Standard deviation of the magnitude, 0 or more.
        rand_augment_increasing: Whether a higher magnitude always changes the image more, see
            `keras_vit.data.rand_augment.rand_augment`.
        three_augment: Whether each image is converted to gray, solarized or blurred.
        color_jitter: Maximum change of brightness, contrast and color, in [0, 1].
        erasing: Probability of replacing a rectangle by noise, in [0, 1].
        mixup: Parameter of MixUp's Beta distribution; 0 for no MixUp.
        cutmix: Parameter of CutMix's Beta distribution; 0 for no CutMix.
        mixing_probability: Probability of mixing an image if MixUp or CutMix is on, in [0, 1].
        repeats: Copies of an image in an epoch, each augmented differently. The epoch then has
            fewer different images, not more steps.
        layers: Augmentation layers of Keras or KerasCV, or their configurations. They change
            batches of pixels, [0, 255], before scaling, erasing and mixing, and must compute in
            float32. Their random state cannot be saved: a resumed run uses other random numbers.

    Raises:
        ValueError: If a value is out of range.

    Examples:
        >>> Augmentation(mixup=0.2, rand_augment_ops=2, rand_augment_magnitude=9).mixes
        True
    """

    crop_area: tuple[float, float] = CROP_AREA
    flip: bool = True
    rand_augment_ops: Count = 0
    rand_augment_magnitude: NonNegative = 9.0
    rand_augment_std: NonNegative = 0.0
    rand_augment_increasing: bool = False
    three_augment: bool = False
    color_jitter: Fraction = 0.0
    erasing: Fraction = 0.0
    mixup: NonNegative = 0.0
    cutmix: NonNegative = 0.0
    mixing_probability: Fraction = 1.0
    repeats: PositiveInt = 1
    layers: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        arguments.check_kinds(self)
        area = self.crop_area
        is_pair = isinstance(area, (tuple, list)) and len(area) == 2
        if not (is_pair and all(map(arguments.is_number, area)) and 0 < area[0] <= area[1] <= 1):
            raise ValueError(
                "`crop_area` must be two fractions with 0 < smallest <= largest <= 1. Received: "
                f"crop_area={area!r}"
            )
        # A frozen dataclass can only be normalized through object.__setattr__.
        object.__setattr__(self, "crop_area", (float(area[0]), float(area[1])))
        object.__setattr__(self, "layers", tuple(self.layers))

    @property
    def mixes(self) -> bool:
        """True if MixUp or CutMix is applied."""
        return bool(self.mixup or self.cutmix) and self.mixing_probability > 0

    @property
    def needs_color(self) -> bool:
        """True if the augmentation requires images with three channels."""
        return bool(self.rand_augment_ops or self.three_augment or self.color_jitter)


def random_geometry(
    stored: Stored, seed: tf.Tensor, preprocessing: Preprocessing, augmentation: Augmentation
) -> Geometry:
    """Returns the random crop and flip of one image, which `padded` has enlarged if necessary."""
    crop_seed, flip_seed = tf.unstack(tf.random.split(seed, 5))[:2]
    sides = exif.swapped(stored.sides, stored.orientation)
    begin, size = random_box(sides, crop_seed, preprocessing, augmentation.crop_area)
    flip = tf.random.stateless_uniform((), flip_seed) < 0.5  # as in `random_flip`
    return Geometry(begin - stored.border, size, flip & augmentation.flip)


def augment(
    stored: Stored,
    geometry: Geometry,
    seed: tf.Tensor,
    preprocessing: Preprocessing,
    augmentation: Augmentation,
) -> tf.Tensor:
    """Applies a crop and flip, and random color operations, to one image."""
    ops_seed, three_seed, jitter_seed = tf.unstack(tf.random.split(seed, 5))[2:]
    image = _cropped(stored, geometry.begin + stored.border, geometry.size, preprocessing)
    image = tf.cond(geometry.flip, lambda: tf.reverse(image, [1]), lambda: image)
    # The operations below assume RGB order.
    is_bgr = preprocessing.channels == "bgr" and augmentation.needs_color
    image = tf.reverse(image, axis=[-1]) if is_bgr else image
    if augmentation.rand_augment_ops:
        image = rand_augment(
            image,
            ops_seed,
            num_ops=augmentation.rand_augment_ops,
            magnitude=augmentation.rand_augment_magnitude,
            magnitude_std=augmentation.rand_augment_std,
            increasing=augmentation.rand_augment_increasing,
        )
    if augmentation.three_augment:
        image = three_augment(image, three_seed)
    if augmentation.color_jitter:
        image = color_jitter(image, jitter_seed, strength=augmentation.color_jitter)
    return tf.reverse(image, axis=[-1]) if is_bgr else image


def ratio_for_crop(
    seed: tf.Tensor, preprocessing: Preprocessing, augmentation: Augmentation
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the `ratio` argument of `decode_as_stored` for images that `augment` crops."""

    def ratio(sides: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
        crop_seed = tf.random.split(seed, 5)[0]
        upright = exif.swapped(sides, orientation)
        size = random_box(upright, crop_seed, preprocessing, augmentation.crop_area)[1]
        shrinkage = tf.reduce_min(size) / max(preprocessing.size)
        return ratio_of(sides, shrinkage, TRAINING_MINIMA, preprocessing)

    return ratio


def random_resized_crop(
    image: tf.Tensor | Stored,
    seed: tf.Tensor,
    preprocessing: Preprocessing,
    *,
    area: tuple[float, float] = CROP_AREA,
    ratio: tuple[float, float] = CROP_RATIO,
) -> tf.Tensor:
    """Crops a random rectangle and resizes it to the model's size ("Inception crop").

    Args:
        image: Pixels (H, W, C), uint8, [0, 255], of an upright image, or a `Stored` image.
        seed: Two integers (2,).
        preprocessing: Preprocessing; only `size`, `resize`, `interpolation` and `antialias` are
            used.
        area: Smallest and largest fraction of the image's area, in (0, 1].
        ratio: Smallest and largest aspect ratio (width / height) of the rectangle, relative to that
            of the model's input. With another `resize` than `"crop"`, the ratio is that after the
            image is squashed or padded.

    Returns:
        Pixels (h, w, C), uint8, with a static shape, upright. The largest rectangle in the center
        that has such a ratio if none fits in ten attempts, as in torchvision.

    Examples:
        >>> image = tf.zeros((50, 37, 3), "uint8")
        >>> random_resized_crop(image, [3, 5], Preprocessing(size=(13, 17))).shape
        TensorShape([13, 17, 3])

    Reference:
        Szegedy et al., "Going deeper with convolutions", section 6,
        https://arxiv.org/abs/1409.4842
    """
    stored = padded(image if isinstance(image, Stored) else Stored.of(image), preprocessing)
    sides = exif.swapped(stored.sides, stored.orientation)
    begin, size = random_box(sides, seed, preprocessing, area, ratio)
    return _cropped(stored, begin, size, preprocessing)


def _cropped(
    stored: Stored, begin: tf.Tensor, size: tf.Tensor, preprocessing: Preprocessing
) -> tf.Tensor:
    """Resizes a rectangle of the upright image to the model's size."""
    sides = exif.swapped(stored.sides, stored.orientation)
    begin = exif.mirrored(begin, sides - size, stored.orientation)
    begin, size = (exif.swapped(each, stored.orientation) // stored.ratio for each in (begin, size))
    crop = tf.slice(stored.pixels, tf.concat([begin, [0]], axis=0), tf.concat([size, [-1]], axis=0))
    cropped = Stored(crop, size * stored.ratio, stored.ratio, stored.orientation)
    return resize_for_training(cropped, preprocessing)


def random_flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Flips an image horizontally with probability 0.5.

    Args:
        image: Pixels (h, w, C).
        seed: Two integers (2,).

    Returns:
        Pixels (h, w, C).

    Examples:
        >>> flipped = [random_flip(tf.reshape([1, 2], (1, 2, 1)), [0, i]) for i in range(9)]
        >>> sorted({tuple(image.numpy().ravel().tolist()) for image in flipped})
        [(1, 2), (2, 1)]
    """
    return tf.image.stateless_random_flip_left_right(image, seed)


def random_erasing(image: tf.Tensor, seed: tf.Tensor, *, probability: float) -> tf.Tensor:
    """Replaces a random rectangle by Gaussian noise, with the given probability.

    Reference: https://arxiv.org/abs/1708.04896; noise in every pixel as in DeiT.
    """
    apply_seed, box_seed, noise_seed = tf.unstack(tf.random.split(seed, 3))
    h, w = image.shape[0], image.shape[1]
    area, ratio = (0.02, 1 / 3), (0.3, 10 / 3)

    def erased() -> tf.Tensor:
        u = tf.unstack(tf.random.stateless_uniform((4,), box_seed))
        area_fraction = area[0] + u[0] * (area[1] - area[0])
        aspect = tf.exp(math.log(ratio[0]) + u[1] * math.log(ratio[1] / ratio[0]))
        height = tf.minimum(tf.sqrt(area_fraction * h * w * aspect), float(h))
        width = tf.minimum(tf.sqrt(area_fraction * h * w / aspect), float(w))
        rows = _within(h, u[2] * (h - height), height)
        columns = _within(w, u[3] * (w - width), width)
        values = tf.random.stateless_normal(image.shape, noise_seed)
        return augmentation_ops.paste(image, values, rows, columns)

    apply = tf.random.stateless_uniform((), apply_seed) < probability
    return tf.cond(apply, erased, lambda: image)


def _within(side: int, start: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    centers = tf.range(side, dtype=tf.float32) + 0.5
    return (centers >= start) & (centers < start + length)
