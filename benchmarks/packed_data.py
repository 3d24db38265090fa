"""Rate of training images from packed shards, against the same images in a folder.

Reads, decodes and augments the training batches of both sources in turns, and computes the ratio of
their times for each pair, and its median.

    python benchmarks/packed_data.py photos/ [--images 512] [--size 224] [--pairs 9]
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from train_step import hardware

from keras_vit.data import Examples, load, training_dataset
from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.packing import pack


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="folder of images")
    parser.add_argument("--images", type=int, default=512, help="images of a measurement")
    parser.add_argument("--size", type=int, default=224, help="sides of the batches, in pixels")
    parser.add_argument("--pairs", type=int, default=9, help="pairs of measurements")
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed"
        print(pack(arguments.data, packed).text())
        sources = [load(arguments.data), load(packed)]
        for examples in sources:  # files are in memory after this
            seconds(examples, arguments.images, arguments.size, 0)
        ratios = []
        for pair in range(arguments.pairs):
            order = (0, 1) if pair % 2 else (1, 0)
            found = {i: seconds(sources[i], arguments.images, arguments.size, pair) for i in order}
            ratios.append(found[0] / found[1])
            print(f"pair {pair + 1}: folder {found[0]:.2f} s, shards {found[1]:.2f} s")
    draws = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    text = (
        f"# Images from packed shards\n\n{hardware()}; Python {platform.python_version()}, "
        f"TensorFlow {tf.__version__}; {arguments.images} images of {Path(arguments.data).name} "
        f"at {arguments.size} pixels with the default augmentation, {arguments.pairs} pairs in "
        "turns.\n\nRate from shards / rate from the folder: "
        f"**{np.median(ratios):.3f}** (95% of the median, bootstrap: {low:.3f} to {high:.3f}).\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


def seconds(examples: Examples, images: int, size: int, seed: int) -> float:
    """Returns the time of some training batches in seconds."""
    batches = training_dataset(
        examples, Preprocessing(size=(size, size)), batch_size=32, epochs=1, seed=seed
    ).take(images // 32)
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
