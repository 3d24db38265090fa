"""Rate of training images from packed shards, against the same images in a folder.

Reads, decodes and augments the training batches of both sources in turns, and computes the ratio of
their times for each pair, and its median.

    python benchmarks/packed_data.py photos/ [--images 4096] [--size 224] [--pairs 9]

With `--formats`, files in random order are read from shards and from ArrayRecord, without decoding.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from train_step import hardware
from turns import median_interval

from keras_vit.data import Examples, load, training_dataset
from keras_vit.data.pipeline import read_ahead, with_contents
from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.packing import pack


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="folder of images")
    parser.add_argument("--images", type=int, default=4096, help="images of a measurement")
    parser.add_argument("--size", type=int, default=224, help="sides of the batches, in pixels")
    parser.add_argument("--pairs", type=int, default=9, help="pairs of measurements")
    parser.add_argument("--formats", action="store_true", help="compare shards with ArrayRecord")
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed"
        print(pack(arguments.data, packed, progress=False).text())
        examples = load(packed)
        if arguments.formats:
            names = ("ArrayRecord", "shards")
            order = np.random.default_rng(0).permutation(len(examples))
            indices = tf.data.Dataset.from_tensor_slices(order)
            datasets = (
                array_record(indices, examples, Path(folder) / "all.array_record"),
                with_contents(indices, examples, lambda index: index),
            )
            contestants = [functools.partial(reading, dataset) for dataset in datasets]
        else:
            names = ("the folder", "shards")
            options = (arguments.images, arguments.size)
            sources = (load(arguments.data), examples)
            contestants = [functools.partial(training, source, *options) for source in sources]
        for measure in contestants:  # files are in memory after this
            measure()
        ratios = []
        for pair in range(arguments.pairs):
            turns = (0, 1) if pair % 2 else (1, 0)
            found = {i: contestants[i]() for i in turns}
            ratios.append(found[0] / found[1])
            print(f"pair {pair + 1}: {names[0]} {found[0]:.2f} s, {names[1]} {found[1]:.2f} s")
    size = f"{arguments.size} pixels with the default augmentation"
    what = "files in random order" if arguments.formats else f"training images of {size}"
    text = (
        f"# Images from packed shards\n\n{hardware()}; Python {platform.python_version()}, "
        f"TensorFlow {tf.__version__}; photographs of {Path(arguments.data).name}, "
        f"in turns.\n\nRate of {what} from shards / from {names[0]}: {median_interval(ratios)}.\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


def training(examples: Examples, images: int, size: int) -> float:
    """Returns the time of some training batches in seconds, after the first batch."""
    return seconds(
        training_dataset(
            examples, Preprocessing(size=(size, size)), batch_size=32, epochs=1_000
        ).take(images // 32 + 1)
    )


def reading(dataset: tf.data.Dataset) -> float:
    """Returns the time in seconds to read all files of a dataset."""
    return seconds(read_ahead(dataset.batch(32)))


def array_record(indices: tf.data.Dataset, examples: Examples, path: Path) -> tf.data.Dataset:
    """Writes all images to an ArrayRecord file; returns the dataset that reads it."""
    from array_record.python import array_record_data_source, array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for index in range(len(examples)):
        writer.write(examples.read(index))
    writer.close()
    source = array_record_data_source.ArrayRecordDataSource(str(path))

    def read(some: np.ndarray) -> np.ndarray:
        return np.array(source.__getitems__(some), object)

    blocks = indices.batch(16)
    return blocks.map(
        lambda some: tf.ensure_shape(tf.numpy_function(read, [some], tf.string), (None,)),
        tf.data.AUTOTUNE,
    ).unbatch()


def seconds(dataset: tf.data.Dataset) -> float:
    """Returns the time of all batches but the first."""
    batches = iter(dataset)
    next(batches)
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
