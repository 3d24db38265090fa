"""Input pipelines for `evaluate` and `predict`, and functions shared by all pipelines.

B is the batch size, h and w the model's image size, C the number of channels, K the number of
classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit import arguments
from keras_vit.data.decode_and_resize import scale
from keras_vit.data.examples import Examples
from keras_vit.data.geometry import centered_geometry
from keras_vit.data.image_reading import decode_checked, upright_sides
from keras_vit.image_formats import image_format
from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.paths import StoredFiles

#: Errors of a dataset whose files were removed, damaged or replaced after the audit.
UNREADABLE = (
    tf.errors.NotFoundError,
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    tf.errors.UnknownError,
)
_READ_BATCH_SIZE = 32  # images


def evaluation_dataset(
    examples: Examples,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    pad: bool = False,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns preprocessed batches of all images, in their original order.

    Args:
        examples: The images.
        preprocessing: The preprocessing.
        batch_size: Global batch size, over all workers; the last batch may be smaller.
        pad: Whether the last batch is padded with images of weight 0, for devices that need
            batches of one size; every image then has a weight.
        shard: Index of this worker and number of workers; each worker reads its shard of every
            batch. Several workers need `pad`.

    Returns:
        Dataset of known cardinality: model input (B, h, w, C), float32, and targets, for classes
        (B, K), float32; with `pad` also weights (B,), float32, 1 or 0. B is `batch_size` divided
        by the number of workers.

    Raises:
        ValueError: If `batch_size` or `shard` is out of its range, or several workers read
            without `pad`.

    Examples:
        >>> from keras_vit.data import load
        >>> digits = load("digits").subset(range(11))
        >>> dataset = evaluation_dataset(digits, Preprocessing(size=8), batch_size=3)
        >>> [len(x) for x, y in dataset]
        [3, 3, 3, 2]
    """
    arguments.positive_int("batch_size", batch_size)
    check_shard(batch_size, shard)
    index, workers = shard
    if workers > 1 and not pad:
        raise ValueError(
            "`pad` must be True with several workers, because all workers must receive the same "
            f"number of batches. Received: pad={pad}, shard={shard}"
        )
    read = reader(examples)
    num_images = len(examples)

    def image_index(position: tf.Tensor) -> tf.Tensor:
        return tf.minimum(position, num_images - 1)

    @tf.autograph.experimental.do_not_convert  # a third of the time before the first batch
    def example(position: tf.Tensor, *contents: tf.Tensor) -> tuple[tf.Tensor, ...]:
        encoded, target = read(image_index(position), *contents)
        image = scale(decode_checked(encoded, preprocessing), preprocessing)
        if examples.kind.dense:
            geometry = centered_geometry(upright_sides(encoded, preprocessing), preprocessing)
            target = examples.kind.follow(target, geometry, preprocessing.size)
        if not pad:
            return image, target
        return image, target, tf.cast(position < num_images, tf.float32)

    worker_batch_size = batch_size // workers
    num_batches = -(-num_images // batch_size)
    dataset = tf.data.Dataset.range(num_batches * batch_size if pad else num_images)
    if workers > 1:
        cardinality = tf.data.experimental.assert_cardinality(num_batches * worker_batch_size)
        dataset = dataset.filter(
            lambda position: position % batch_size // worker_batch_size == index
        ).apply(cardinality)
    dataset = with_contents(dataset, examples, image_index).map(example, tf.data.AUTOTUNE)
    return read_ahead(dataset.batch(worker_batch_size, drop_remainder=pad))


def image_dataset(
    encoded: Sequence[bytes], preprocessing: Preprocessing, *, batch_size: int
) -> tf.data.Dataset:
    """Returns preprocessed batches of unlabeled images.

    Args:
        encoded: The bytes of image files of any sizes.
        preprocessing: The preprocessing.
        batch_size: Batch size; the last batch may be smaller.

    Returns:
        Dataset of known cardinality of model input (B, h, w, C), float32.

    Examples:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8")).numpy()
        >>> dataset = image_dataset([png], Preprocessing(size=11), batch_size=2)
        >>> next(iter(dataset)).shape
        TensorShape([1, 11, 11, 3])
    """
    arguments.positive_int("batch_size", batch_size)
    with tf.device("CPU"):
        files = tf.constant(list(encoded), tf.string)
    dataset = tf.data.Dataset.from_tensor_slices(files)

    @tf.autograph.experimental.do_not_convert
    def example(file: tf.Tensor) -> tf.Tensor:
        return scale(decode_checked(file, preprocessing), preprocessing)

    return read_ahead(dataset.map(example, tf.data.AUTOTUNE).batch(batch_size))


def reader(examples: Examples) -> Callable[..., tuple[tf.Tensor, Any]]:
    """Returns a `tf.data` function that returns the encoded image and the target at an index.

    Its other argument is the image's content, if `with_contents` has added it.
    """
    with tf.device("CPU"):
        encoded, target = _file_reader(examples), examples.kind.reader(examples)
    return lambda index, *contents: (contents[0] if contents else encoded(index), target(index))


def with_contents(
    dataset: tf.data.Dataset, examples: Examples, index: Callable[..., tf.Tensor]
) -> tf.data.Dataset:
    """Appends the encoded image to each element, for files that Python reads.

    Each call reads several images, because a call for each image takes five times as long. The
    cardinality of `dataset` must be known; `index` computes an image's index from an element.
    """
    stored = examples.encoded
    if not isinstance(stored, StoredFiles):
        return dataset

    @tf.autograph.experimental.do_not_convert
    def read(*element: tf.Tensor) -> tuple[tf.Tensor, ...]:
        contents = tf.numpy_function(stored.contents, [index(*element)], tf.string)
        return *element, tf.ensure_shape(contents, (None,))

    with_files = dataset.batch(_READ_BATCH_SIZE).map(read, tf.data.AUTOTUNE).unbatch()
    return with_files.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))


def _file_reader(examples: Examples) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a `tf.data` function that reads the encoded image at a given index."""
    stored = examples.encoded
    if isinstance(stored, StoredFiles):
        return lambda i: tf.ensure_shape(tf.numpy_function(stored.__getitem__, [i], tf.string), ())
    if stored is not None:
        contents = tf.constant(stored, tf.string)
        return lambda i: tf.gather(contents, i)
    # A path need not be valid UTF-8.
    paths = tf.constant([os.fsencode(path) for path in examples.paths or ()], tf.string)
    return lambda i: tf.io.read_file(tf.gather(paths, i))


def check_shard(batch_size: int, shard: tuple[int, int]) -> None:
    """Raises `ValueError` unless a batch can be divided equally among the workers."""
    index, workers = shard
    if not 0 <= index < workers:
        raise ValueError(
            f"`shard` must be (index, workers) with 0 <= index < workers. Received: shard={shard}"
        )
    if batch_size % workers:
        raise ValueError(
            "`batch_size` must be a multiple of the number of workers. "
            f"Received: batch_size={batch_size}, shard={shard}"
        )


def read_ahead(dataset: tf.data.Dataset, number: int = 2) -> tf.data.Dataset:
    """Prefetches elements and disables autotuning; `AUTOTUNE` then means one thread per core.

    With autotuning, deleting an iterator waits for the tuner's thread, which may sleep as long as
    the iterator has existed, up to a minute (docs/decisions/0019-performance.md).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(number).with_options(options)


def read_pixels(encoded: Sequence[bytes], preprocessing: Preprocessing) -> np.ndarray:
    """Decodes and resizes images to uint8 pixels of shape (N, h, w, C), without scaling."""
    with tf.device("CPU"):
        return np.stack([decode_checked(tf.constant(file), preprocessing) for file in encoded])


def read_files(
    paths: Sequence[str | os.PathLike[str]], encoded: list[bytes], preprocessing: Preprocessing
) -> np.ndarray:
    """Calls `read_pixels` on files; raises `ValueError` with the path of an undecodable file."""
    pixels = []
    for path, file in zip(paths, encoded, strict=True):
        try:
            pixels.append(read_pixels([file], preprocessing)[0])
        except tf.errors.OpError as error:
            raise ValueError(
                "`paths` must be images that can be decoded (JPEG, PNG, GIF, BMP, WebP); "
                "`keras-vit data convert` converts HEIC, TIFF and other formats to JPEG. "
                f"Received: {os.fspath(path)} ({image_format(file) or 'unknown format'})"
            ) from error
    return np.stack(pixels)
