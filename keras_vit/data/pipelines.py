"""Labelled images -> batches for `fit`, `evaluate` and `predict`.

B is the batch size, h and w the model's image size, C the number of channels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_vit import checks
from keras_vit.constants import CROP_AREA
from keras_vit.data import pixels
from keras_vit.data.augmentation import random_flip, random_resized_crop
from keras_vit.data.examples import Examples
from keras_vit.preprocessing import Preprocessing

# Keep the streams of random numbers apart that are drawn from one seed.
_ORDER, _AUGMENTATION = 0, 1


def steps_per_epoch(examples: Examples, batch_size: int) -> int:
    """Returns the number of full batches; the rest of the images waits for another epoch.

    Args:
        examples: The training images.
        batch_size: Images in a batch.

    Returns:
        Number of training steps in an epoch, at least 1.

    Raises:
        ValueError: If there are fewer images than `batch_size`.

    Example:
        >>> from keras_vit.data import load
        >>> steps_per_epoch(load("digits"), 32)
        56
    """
    steps = len(examples) // checks.positive_int("batch_size", batch_size)
    if steps == 0:
        raise ValueError(
            f"`batch_size` must be at most the number of training images, {len(examples)}; pass a "
            f"smaller one (--batch-size). "
            f"Received: batch_size={batch_size}"
        )
    return steps


def training_dataset(
    examples: Examples,
    contract: Preprocessing,
    *,
    batch_size: int,
    epochs: int,
    seed: int = 0,
    initial_epoch: int = 0,
    crop_area: tuple[float, float] = CROP_AREA,
    flip: bool = True,
) -> tf.data.Dataset:
    """Shuffles, crops, flips and batches the training images of several epochs.

    The order follows from (seed, epoch), the crop and flip of an image from (seed, epoch, image):
    an epoch is the same to the bit whether training came through the earlier ones or starts with
    it. Each epoch sees `steps_per_epoch * batch_size` different images, each image once at most.

    Args:
        examples: The training images.
        contract: The pixel contract; cropping at random takes the place of its `resize`.
        batch_size: Images in a batch.
        epochs: Epoch to stop before, counted from 0.
        seed: Seed of all randomness, in [0, 2**63).
        initial_epoch: Epoch to start with, in [0, epochs).
        crop_area: Smallest and largest share of an image's area that a crop shows, in (0, 1].
        flip: Whether to mirror half of the images; never done if the examples are not
            `flip_safe`.

    Returns:
        Dataset of `(epochs - initial_epoch) * steps_per_epoch` batches, a number that it knows:
        model input (B, h, w, C), float32, and one-hot labels (B, classes), float32.

    Raises:
        ValueError: If there is not one full batch, or an argument is out of its range.

    Example:
        >>> from keras_vit.data import load
        >>> digits = load("digits").subset(range(11))
        >>> dataset = training_dataset(digits, Preprocessing(size=8), batch_size=3, epochs=2)
        >>> len(dataset)
        6
        >>> x, y = next(iter(dataset))
        >>> x.shape, y.shape
        (TensorShape([3, 8, 8, 3]), TensorShape([3, 10]))
    """
    used = steps_per_epoch(examples, batch_size) * batch_size
    checks.positive_int("epochs", epochs)
    if not 0 <= initial_epoch < epochs:
        raise ValueError(
            f"`initial_epoch` must be in [0, epochs). Received: initial_epoch={initial_epoch}, "
            f"epochs={epochs}"
        )
    if not 0 <= seed < 2**63:
        raise ValueError(f"`seed` must be in [0, 2**63). Received: seed={seed}")
    if not 0 < crop_area[0] <= crop_area[1] <= 1:
        raise ValueError(
            "`crop_area` must be an increasing pair in (0, 1]. Received: "
            f"crop_area={tuple(crop_area)}"
        )
    flip = flip and examples.flip_safe
    read = _reader(examples)
    fold_in = tf.random.experimental.stateless_fold_in

    def order(epoch: tf.Tensor) -> tf.data.Dataset:
        # tf.random.experimental.index_shuffle needs no memory for the order, but it favours some
        # places (docs/decisions/0005).
        key = fold_in(tf.constant([seed, _ORDER], tf.int64), epoch)
        indices = tf.range(len(examples), dtype=tf.int64)
        indices = tf.random.experimental.stateless_shuffle(indices, seed=key)[:used]
        return tf.data.Dataset.from_tensor_slices(indices).map(lambda index: (epoch, index))

    def example(epoch: tf.Tensor, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        encoded, label = read(index)
        key = fold_in(fold_in(tf.constant([seed, _AUGMENTATION], tf.int64), epoch), index)
        crop_seed, flip_seed = tf.unstack(tf.random.split(key, 2))
        image = pixels.decode(encoded, contract)
        image = random_resized_crop(image, crop_seed, contract, area=crop_area)
        if flip:
            image = random_flip(image, flip_seed)
        return pixels.scale(image, contract), label

    dataset = tf.data.Dataset.range(initial_epoch, epochs).flat_map(order)
    # `fit` runs an extra step each epoch where it does not know the number of batches.
    dataset = dataset.apply(
        tf.data.experimental.assert_cardinality((epochs - initial_epoch) * used)
    )
    return _batches(dataset.map(example, tf.data.AUTOTUNE), batch_size, drop_remainder=True)


def evaluation_dataset(
    examples: Examples, contract: Preprocessing, *, batch_size: int
) -> tf.data.Dataset:
    """Batches all images in their order, prepared as the contract says.

    Args:
        examples: The images.
        contract: The pixel contract.
        batch_size: Images in a batch; the last one may have fewer.

    Returns:
        Dataset of a known number of batches: model input (B, h, w, C), float32, and one-hot
        labels (B, classes), float32.

    Example:
        >>> from keras_vit.data import load
        >>> digits = load("digits").subset(range(11))
        >>> dataset = evaluation_dataset(digits, Preprocessing(size=8), batch_size=3)
        >>> [len(x) for x, y in dataset]
        [3, 3, 3, 2]
    """
    read = _reader(examples)

    def example(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        encoded, label = read(index)
        return pixels.prepare(encoded, contract), label

    dataset = tf.data.Dataset.range(len(examples)).map(example, tf.data.AUTOTUNE)
    return _batches(dataset, batch_size)


def image_dataset(
    encoded: Sequence[bytes], contract: Preprocessing, *, batch_size: int
) -> tf.data.Dataset:
    """Batches images without labels, prepared as the contract says.

    Args:
        encoded: The bytes of image files of any sizes.
        contract: The pixel contract.
        batch_size: Images in a batch; the last one may have fewer.

    Returns:
        Dataset of a known number of batches of model input (B, h, w, C), float32.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8")).numpy()
        >>> dataset = image_dataset([png], Preprocessing(size=11), batch_size=2)
        >>> next(iter(dataset)).shape
        TensorShape([1, 11, 11, 3])
    """
    with tf.device("CPU"):
        files = tf.constant(list(encoded), tf.string)
    dataset = tf.data.Dataset.from_tensor_slices(files)
    dataset = dataset.map(lambda file: pixels.prepare(file, contract), tf.data.AUTOTUNE)
    return _batches(dataset, batch_size)


def _reader(examples: Examples) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Returns a graph function: index -> (encoded image, one-hot label)."""
    in_memory = examples.encoded is not None
    # A path need not be valid UTF-8.
    files = examples.encoded if in_memory else [os.fsencode(path) for path in examples.paths or ()]
    with tf.device("CPU"):
        files = tf.constant(files, tf.string)
        labels = tf.constant(examples.labels)

    def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        file = tf.gather(files, index)
        encoded = file if in_memory else tf.io.read_file(file)
        return encoded, tf.one_hot(tf.gather(labels, index), len(examples.class_names))

    return read


def _batches(
    dataset: tf.data.Dataset, batch_size: int, drop_remainder: bool = False
) -> tf.data.Dataset:
    checks.positive_int("batch_size", batch_size)
    return dataset.batch(batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)
