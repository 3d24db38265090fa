"""Input pipeline for `fit`: bit-identical after resumption and for any number of workers.

B is the batch size of one worker, h and w the model's image size, C the number of channels, K the
number of classes. An image's *position* is its index in the epoch's order; a batch consists of
consecutive positions.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit import arguments
from keras_vit.data.augmentation import (
    Augmentation,
    augment,
    random_erasing,
    random_geometry,
    ratio_for_crop,
)
from keras_vit.data.decode_and_resize import padded, scale
from keras_vit.data.examples import Examples
from keras_vit.data.image_reading import decode_large_serially
from keras_vit.data.keras_layers import apply_layers, read_layers
from keras_vit.data.mixing import mix
from keras_vit.data.pipeline import check_shard, read_ahead, reader, with_contents
from keras_vit.data.rand_augment import MIN_SIDE
from keras_vit.data.target_kinds import ClassIndex, MultiHot, TargetKind
from keras_vit.preprocessing import Preprocessing

# Augmentations that move or cover pixels, except crops and flips.
_MOVING = ("rand_augment_ops", "erasing", "layers")
# Independent streams of random numbers from one seed.
_ORDER, _AUGMENTATION, _REPETITION, _ERASING, _MIXING = range(5)


def steps_per_epoch(examples: Examples, batch_size: int) -> int:
    """Returns the number of full batches per epoch; the remaining images are dropped.

    Args:
        examples: The training images.
        batch_size: Batch size.

    Returns:
        Number of training steps in an epoch, at least 1.

    Raises:
        ValueError: If there are fewer images than `batch_size`.

    Examples:
        >>> from keras_vit.data import load
        >>> steps_per_epoch(load("digits"), 32)
        56
    """
    steps = len(examples) // arguments.positive_int("batch_size", batch_size)
    if steps == 0:
        raise ValueError(
            f"`batch_size` must be at most the number of training images, {len(examples)}; pass "
            f"a smaller batch size (--batch-size). Received: batch_size={batch_size}"
        )
    return steps


def check_augmentation(augmentation: Augmentation, kind: TargetKind) -> None:
    """Raises `ValueError` if an augmentation does not move targets of a kind with their images."""
    if isinstance(kind, (ClassIndex, MultiHot)):
        return
    unsupported = ("mixup", "cutmix", *(_MOVING if kind.dense else ()))
    if enabled := [name for name in unsupported if getattr(augmentation, name)]:
        raise ValueError(
            "`augmentation` must only crop, flip and color images whose targets are "
            f"{type(kind).__name__.lower()}, as crop_area, flip, three_augment and color_jitter "
            f"do. Received: {', '.join(enabled)} (--set {enabled[0]}=0 turns it off)"
        )


def balanced_draws(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of the images in an epoch with equally frequent classes, by class.

    The second array counts how often each image has been drawn before in the epoch.

    Examples:
        >>> balanced_draws(np.array([4, 0, 2]))
        (array([0, 1, 2, 4, 5, 4]), array([0, 0, 0, 0, 0, 1]))
    """
    classes = np.flatnonzero(counts)
    per_class, remainder = divmod(int(counts.sum()), len(classes))
    starts = np.cumsum(counts) - counts
    draws = [np.arange(per_class + (i < remainder)) for i in range(len(classes))]
    indices = [starts[k] + draw % counts[k] for k, draw in zip(classes, draws, strict=True)]
    repeats = [draw // counts[k] for k, draw in zip(classes, draws, strict=True)]
    return np.concatenate(indices), np.concatenate(repeats)


def training_dataset(
    examples: Examples,
    preprocessing: Preprocessing,
    augmentation: Augmentation | None = None,
    *,
    batch_size: int,
    epochs: int,
    seed: int = 0,
    balanced: bool = False,
    initial_epoch: int = 0,
    initial_step: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns shuffled, augmented batches of the training images for several epochs.

    The order depends on (seed, epoch), the augmentation of an image on (seed, epoch, image), and
    erasing and mixing on (seed, epoch, position): a step is bit-identical in an uninterrupted and
    in a resumed run, and on any worker. Each epoch has `steps_per_epoch * batch_size` images, all
    different unless they are repeated or balanced.

    Args:
        examples: The training images.
        preprocessing: The preprocessing; random cropping replaces its `resize`.
        augmentation: The augmentation; by default a random crop and flip.
        batch_size: Global batch size, over all workers.
        epochs: Last epoch + 1, counted from 0.
        seed: Seed of all random numbers, in [0, 2**63).
        balanced: Whether all classes are drawn equally often, each image as often as the others of
            its class or once more.
        initial_epoch: First epoch, in [0, epochs).
        initial_step: First step of the first epoch, in [0, steps_per_epoch).
        shard: Index of this worker and number of workers; each reads its shard of every batch.

    Returns:
        Dataset of the remaining batches, of known cardinality: model input (B, h, w, C), float32,
        and targets, for classes (B, K), float32; B is `batch_size` divided by the number of
        workers.

    Raises:
        ValueError: If there is no full batch, or an argument is out of range.

    Examples:
        >>> from keras_vit.data import load
        >>> digits = load("digits").subset(range(11))
        >>> dataset = training_dataset(digits, Preprocessing(size=8), batch_size=3, epochs=2)
        >>> len(dataset)
        6
        >>> x, y = next(iter(dataset))
        >>> x.shape, y.shape
        (TensorShape([3, 8, 8, 3]), TensorShape([3, 10]))
    """
    augmentation = augmentation or Augmentation()
    augmentation = dataclasses.replace(augmentation, flip=augmentation.flip and examples.flip_safe)
    steps = steps_per_epoch(examples, batch_size)
    arguments.positive_int("epochs", epochs)
    if not 0 <= initial_epoch < epochs:
        raise ValueError(
            f"`initial_epoch` must be in [0, epochs). Received: initial_epoch={initial_epoch}, "
            f"epochs={epochs}"
        )
    if not 0 <= initial_step < steps:
        raise ValueError(
            "`initial_step` must be in [0, steps_per_epoch). "
            f"Received: initial_step={initial_step}, {steps} steps in an epoch"
        )
    check_shard(batch_size, shard)
    if not 0 <= seed < 2**63:
        raise ValueError(f"`seed` must be in [0, 2**63). Received: seed={seed}")
    if balanced and (not isinstance(examples.kind, ClassIndex) or augmentation.repeats > 1):
        raise ValueError(
            "`balanced` must be False unless every image has one class and is not repeated. "
            f"Received: balanced=True with {examples.source} and repeats={augmentation.repeats}"
        )
    pipeline = _Pipeline(
        examples, preprocessing, augmentation, batch_size, steps, seed, shard, balanced
    )
    return pipeline.dataset(epochs, initial_epoch, initial_step)


@dataclasses.dataclass(eq=False)
class _Pipeline:
    """Pipeline that yields one worker's shard of every training batch."""

    examples: Examples
    preprocessing: Preprocessing
    augmentation: Augmentation
    batch_size: int  # over all workers
    steps: int  # in an epoch
    seed: int
    shard: tuple[int, int]
    balanced: bool

    def __post_init__(self) -> None:
        # Constants of the graphs below, which are created once.
        self.read, self.kind = reader(self.examples), self.examples.kind
        self.layers = read_layers(self.augmentation.layers)
        self.max_copies = self.augmentation.repeats
        self.worker_batch_size = self.batch_size // self.shard[1]
        if self.balanced:
            self.draws, self.draw_repeats = balanced_draws(self.examples.class_counts())
            self.max_copies = int(self.draw_repeats.max()) + 1
        check_augmentation(self.augmentation, self.kind)
        if self.augmentation.mixes and self.worker_batch_size % 2:
            raise ValueError(
                "`batch_size` must be even on every worker for MixUp and CutMix, because images "
                f"are mixed in pairs. Received: batch_size={self.batch_size}, shard={self.shard}"
            )
        if self.augmentation.needs_color and self.preprocessing.num_channels != 3:
            raise ValueError(
                "`preprocessing` must have three channels for RandAugment, 3-Augment and color "
                f"jitter. Received: channels={self.preprocessing.channels!r}"
            )
        if self.augmentation.three_augment and min(self.preprocessing.size) < MIN_SIDE:
            raise ValueError(
                f"`preprocessing` must have a size of at least {MIN_SIDE} pixels for the blur of "
                f"3-Augment. Received: size={self.preprocessing.size}"
            )

    def dataset(self, epochs: int, initial_epoch: int, initial_step: int) -> tf.data.Dataset:
        """Returns all remaining batches, starting at a given step of an epoch."""

        @tf.autograph.experimental.do_not_convert
        def order(epoch: tf.Tensor) -> tf.data.Dataset:
            return self.order(epoch, tf.where(epoch == initial_epoch, initial_step, 0))

        dataset = tf.data.Dataset.range(initial_epoch, epochs).flat_map(order)
        # `fit` runs an extra step per epoch if the cardinality is unknown.
        num_steps = (epochs - initial_epoch) * self.steps - initial_step
        num_images = num_steps * self.worker_batch_size
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_images))
        dataset = with_contents(dataset, self.examples, self.index)
        dataset = dataset.map(self.example, tf.data.AUTOTUNE)
        dataset = dataset.batch(self.worker_batch_size, drop_remainder=True)
        # Layers with their own seed generators depend on the order of calls.
        num_parallel_calls = None if self.layers else tf.data.AUTOTUNE
        return read_ahead(dataset.map(self.batch, num_parallel_calls))

    def order(self, epoch: tf.Tensor, initial_step: tf.Tensor) -> tf.data.Dataset:
        """Returns this worker's (epoch, image, position) triples of an epoch."""
        images = self.shuffled(epoch)

        @tf.autograph.experimental.do_not_convert
        def example(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
            step, offset = index // self.worker_batch_size, index % self.worker_batch_size
            position = step * self.batch_size + self.shard[0] * self.worker_batch_size + offset
            return epoch, tf.gather(images, position), position

        first = tf.cast(initial_step, tf.int64) * self.worker_batch_size
        return tf.data.Dataset.range(first, self.steps * self.worker_batch_size).map(example)

    def shuffled(self, epoch: tf.Tensor) -> tf.Tensor:
        """Returns an epoch's images in random order; copy j of image i is i * max_copies + j."""
        # tf.random.experimental.index_shuffle needs no memory for the order, but is not uniform
        # (docs/decisions/0005).
        shuffle = tf.random.experimental.stateless_shuffle
        with tf.init_scope():  # an input: a constant would be folded to all indices, several copies
            number = tf.constant(len(self.examples), tf.int64)
        images = shuffle(tf.range(number), seed=self.key(_ORDER, epoch))
        if self.balanced:  # the images of a class stay in their random order
            classes = tf.gather(np.asarray(self.examples.targets), images)
            images = tf.gather(images, tf.argsort(classes, stable=True))
            images = tf.gather(images, self.draws) * self.max_copies + self.draw_repeats
        elif self.max_copies == 1:
            return images
        else:
            copies = tf.range(self.max_copies, dtype=tf.int64)
            images = images[:, tf.newaxis] * self.max_copies + copies
            images = tf.reshape(images, (-1,))[: len(self.examples)]
        return shuffle(images, seed=self.key(_REPETITION, epoch))

    def index(self, epoch: tf.Tensor, image: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns the index of the image of which `image` is a copy."""
        return image // self.max_copies

    @tf.autograph.experimental.do_not_convert
    def example(
        self, epoch: tf.Tensor, image: tf.Tensor, position: tf.Tensor, *contents: tf.Tensor
    ) -> tuple:
        """Reads and augments an image; also returns the seeds for erasing and mixing."""
        encoded, target = self.read(self.index(epoch, image, position), *contents)
        seed = self.key(_AUGMENTATION, epoch, image)
        ratio = ratio_for_crop(seed, self.preprocessing, self.augmentation)
        stored = decode_large_serially(encoded, self.preprocessing, ratio)
        stored = padded(stored, self.preprocessing)
        geometry = random_geometry(stored, seed, self.preprocessing, self.augmentation)
        augmented = augment(stored, geometry, seed, self.preprocessing, self.augmentation)
        target = self.kind.follow(target, geometry, self.preprocessing.size)
        erasing, mixing = (self.key(stream, epoch, position) for stream in (_ERASING, _MIXING))
        if not self.layers:
            augmented = self.finish(augmented, erasing)
        return augmented, target, erasing, mixing

    @tf.autograph.experimental.do_not_convert
    def batch(
        self, images: tf.Tensor, labels: Any, erasing: tf.Tensor, mixing: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        """Applies layers, erasing and mixing to a batch; seeds have shape (B, 2)."""
        if self.layers:
            images, labels = apply_layers(images, labels, self.layers)
            images = tf.map_fn(
                lambda values: self.finish(*values),
                (images, erasing),
                fn_output_signature=tf.TensorSpec(images.shape[1:], tf.float32),
            )
        if not self.augmentation.mixes:
            return images, labels
        return mix(
            images,
            labels,
            mixing,
            mixup=self.augmentation.mixup,
            cutmix=self.augmentation.cutmix,
            probability=self.augmentation.mixing_probability,
        )

    def finish(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Scales an image and applies random erasing."""
        image = scale(image, self.preprocessing)
        if not self.augmentation.erasing:
            return image
        return random_erasing(image, seed, probability=self.augmentation.erasing)

    def key(self, stream: int, *numbers: tf.Tensor) -> tf.Tensor:
        """Returns a seed of shape (2,) for a random stream, an epoch, and an image or position."""
        initial = tf.constant([self.seed, stream], tf.int64)
        return functools.reduce(tf.random.experimental.stateless_fold_in, numbers, initial)
