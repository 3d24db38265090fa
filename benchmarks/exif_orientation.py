"""Rates at which one core reads photographs of 12 megapixels, by their Exif orientation.

JPEGs as cameras write them, with orientation 1 (upright) and 6 (on its side), are read for
evaluation and for training, beside the same files with preprocessing that ignores the orientation.
The variants take turns, and a ratio is that of two turns of one round.

    python benchmarks/exif_orientation.py [--size 4032x3024] [--rounds 9]
"""

from __future__ import annotations

import argparse
import io
import os
import platform
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import PIL.Image
import sklearn.datasets
import tensorflow as tf
from input_pipeline import Turn, on_one_core, take_turn
from train_step import hardware
from turns import spread

from keras_vit.data import Augmentation, Examples, image_dataset, training_dataset
from keras_vit.preprocessing import Preprocessing

ORIENTATION = 0x0112  # tag in Exif
IGNORED = "ignored"


def photographs(orientation: int, size: tuple[int, int], count: int = 4) -> Examples:
    """Returns enlarged photographs of scikit-learn with noise, as JPEGs of quality 90."""
    photos = sklearn.datasets.load_sample_images().images  # (427, 640, 3) each
    files = []
    for index in range(count):
        photo = PIL.Image.fromarray(photos[index % len(photos)]).resize(size)
        noise = np.random.default_rng(index).normal(0, 4, (*size[::-1], 3))
        pixels = np.clip(np.asarray(photo) + noise, 0, 255).astype(np.uint8)
        exif, file = PIL.Image.Exif(), io.BytesIO()
        exif[ORIENTATION] = orientation
        PIL.Image.fromarray(pixels).save(file, "JPEG", quality=90, exif=exif)
        files.append(file.getvalue())
    return Examples(
        names=tuple(f"{index}.jpg" for index in range(count)),
        targets=np.arange(count) % 2,
        class_names=("a", "b"),
        source="scikit-learn's photographs, enlarged",
        encoded=tuple(files),
    )


def datasets(examples: Examples, preprocessing: Preprocessing) -> dict[str, tf.data.Dataset]:
    """Returns data sets for evaluation and training, of batches of four, on one core."""
    again = list(examples.encoded or ()) * 100
    return {
        "evaluation": on_one_core(image_dataset(again, preprocessing, batch_size=4)),
        "training": on_one_core(
            training_dataset(
                examples, preprocessing, Augmentation(), batch_size=4, epochs=1_000_000
            )
        ),
    }


def table(turns: dict[tuple[str, str], list[Turn]], images: int) -> str:
    lines = [
        "| images for | orientation | images/s of the core, median (range) | relative to ignored |",
        "|---|---|---|---|",
    ]
    for (purpose, orientation), taken in turns.items():
        base = turns[purpose, IGNORED]
        ratios = [b.processor / t.processor for t, b in zip(taken, base, strict=True)]
        rates = [images / turn.processor for turn in taken]
        lines.append(f"| {purpose} | {orientation} | {spread(rates, 1)} | {spread(ratios, 3)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="4032x3024", help="width and height in pixels")
    parser.add_argument("--batches", type=int, default=4, help="batches of four in a turn")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each variant")
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # Linux; before TensorFlow counts the cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    width, height = map(int, arguments.size.split("x"))
    upright, turned = (photographs(number, (width, height)) for number in (1, 6))
    variants = {
        (purpose, name): dataset
        for name, examples, turns in (
            (IGNORED, upright, False),
            ("1", upright, True),
            ("6", turned, True),
        )
        for purpose, dataset in datasets(
            examples, Preprocessing(size=224, exif_orientation=turns)
        ).items()
    }
    turns: dict[tuple[str, str], list[Turn]] = {variant: [] for variant in sorted(variants)}
    for _ in range(arguments.rounds):
        for variant, taken in turns.items():
            taken.append(take_turn(variants[variant], arguments.batches))
    megabytes = np.mean([len(file) for file in upright.encoded or ()]) / 1e6
    text = (
        f"# Exif orientation of JPEGs of {width} x {height} pixels and {megabytes:.1f} MB\n\n"
        f"{hardware()}, one of them used; Python {platform.python_version()}, TensorFlow "
        f"{tf.__version__}; {arguments.rounds} turns of {4 * arguments.batches} images a variant, "
        f"to 224 pixels.\n\n{table(turns, 4 * arguments.batches)}\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
