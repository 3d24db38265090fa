"""How many training images a second does one core prepare, and what do others need?

From encoded JPEGs to normalized batches: a random crop and a flip, RandAugment(2, 9), MixUp and
CutMix, and all of it; by `keras_vit.data`, by KerasCV's layers and by Keras' layers, these as their
guides use them: images of one size are batched, and the layers change whole batches.

The libraries do not do the same. Ours scales by default bicubically, with antialiasing where an
image shrinks by more than a third; the layers always take four neighboring pixels, which is
cheaper, and Keras has no crop of a random area. The time beyond the library's own crop and flip
tells what the rest costs. Ours mixes each image by MixUp or CutMix, the guides apply one after the
other. Keras' RandAugment draws its operations once for a batch.

The variants take turns, so that whatever else the machine does falls on all of them. The process
is held on one core, and processor time is counted beside the clock's.

    python benchmarks/input_pipeline.py [--data photos/] [--image-size 224] [--batch-size 32]
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import io
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import PIL.Image
import sklearn.datasets
import tensorflow as tf
from train_step import hardware
from turns import spread

from keras_vit.data import Augmentation, Examples, load, training_dataset
from keras_vit.preprocessing import Preprocessing

WORKLOADS = {
    "crop and flip": Augmentation(),
    "RandAugment(2, 9)": Augmentation(rand_augment_ops=2, rand_augment_magnitude=9.0),
    "MixUp and CutMix": Augmentation(mixup=0.2, cutmix=1.0),
    "all of it": Augmentation(
        rand_augment_ops=2, rand_augment_magnitude=9.0, mixup=0.2, cutmix=1.0
    ),
}
PLAIN = next(iter(WORKLOADS))
WARM_UP = 2  # batches of each turn that are not timed

Layer = Callable[..., object]
# Images (B, h, w, C) and one-hot labels (B, K) by the names that layers know them by.
Batch = dict[str, tf.Tensor]
Make = Callable[[Examples, int, int, Augmentation], tf.data.Dataset]


def ours(interpolation: str, antialias: bool, exif_orientation: bool = True) -> Make:
    def make(
        examples: Examples, size: int, batch_size: int, augmentation: Augmentation
    ) -> tf.data.Dataset:
        preprocessing = Preprocessing(
            size=size,
            interpolation=interpolation,
            antialias=antialias,
            exif_orientation=exif_orientation,
        )
        return training_dataset(
            examples, preprocessing, augmentation, batch_size=batch_size, epochs=1_000_000
        )

    return make


def keras_cv_layers(
    examples: Examples, size: int, batch_size: int, augmentation: Augmentation
) -> tf.data.Dataset:
    import keras_cv

    cut = keras_cv.layers.RandomCropAndResize(
        target_size=(size, size),
        crop_area_factor=augmentation.crop_area,
        aspect_ratio_factor=(3 / 4, 4 / 3),
    )
    changes: list[Layer] = [keras_cv.layers.RandomFlip("horizontal")]
    if augmentation.rand_augment_ops:
        changes.append(
            keras_cv.layers.RandAugment(
                value_range=(0, 255),
                augmentations_per_image=augmentation.rand_augment_ops,
                magnitude=augmentation.rand_augment_magnitude / 10,
                magnitude_stddev=0.0,
            )
        )
    mixing: list[Layer] = []
    if augmentation.mixes:
        mixing = [
            keras_cv.layers.CutMix(augmentation.cutmix),
            keras_cv.layers.MixUp(augmentation.mixup),
        ]
    return layers_pipeline(examples, batch_size, cut, changes, mixing)


def keras_layers(
    examples: Examples, size: int, batch_size: int, augmentation: Augmentation
) -> tf.data.Dataset:
    larger = round(size * 8 / 7)  # 256 for 224
    cut = keras.layers.Resizing(larger, larger, crop_to_aspect_ratio=True)
    changes: list[Layer] = [
        keras.layers.RandomCrop(size, size),
        keras.layers.RandomFlip("horizontal"),
    ]
    if augmentation.rand_augment_ops:
        changes.append(
            keras.layers.RandAugment(
                num_ops=augmentation.rand_augment_ops,
                factor=augmentation.rand_augment_magnitude / 10,
            )
        )
    mixing: list[Layer] = []
    if augmentation.mixes:
        mixing = [keras.layers.CutMix(augmentation.cutmix), keras.layers.MixUp(augmentation.mixup)]
    return layers_pipeline(examples, batch_size, cut, changes, mixing)


def layers_pipeline(
    examples: Examples, batch_size: int, cut: Layer, changes: list[Layer], mixing: list[Layer]
) -> tf.data.Dataset:
    """One image at a time to one size; then batches through layers for images and for both."""
    scale = keras.layers.Rescaling(1 / 127.5, offset=-1)
    files = [examples.read(index) for index in range(len(examples))]
    classes = len(examples.class_names)

    def decode(encoded: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.ensure_shape(tf.io.decode_jpeg(encoded, channels=3), (None, None, 3))
        return cut(tf.cast(image, tf.float32), training=True), tf.one_hot(label, classes)

    def change(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for layer in changes:
            images = layer(images, training=True)
        batch: Batch = {"images": images, "labels": labels}
        for layer in mixing:
            batch = layer(batch, training=True)
        return scale(batch["images"]), batch["labels"]

    dataset = tf.data.Dataset.from_tensor_slices((files, examples.targets))
    dataset = dataset.shuffle(len(files)).repeat().map(decode, tf.data.AUTOTUNE)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset.map(change, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


LIBRARIES: dict[str, Make] = {
    "keras_vit": ours("bicubic", antialias=True),
    "keras_vit, bilinear, not antialiased": ours("bilinear", antialias=False),
    "keras_vit, orientation not applied": ours("bicubic", True, exif_orientation=False),
    "KerasCV": keras_cv_layers,
    "Keras": keras_layers,
}


def photographs(count: int) -> Examples:
    """Windows of 500 x 375 pixels of scikit-learn's two photographs, as JPEGs of quality 85."""
    rng = np.random.default_rng(0)
    photos = sklearn.datasets.load_sample_images().images  # (427, 640, 3) each
    files = []
    for index in range(count):
        photo = photos[index % len(photos)]
        top, left = rng.integers(0, photo.shape[0] - 375), rng.integers(0, photo.shape[1] - 500)
        file = io.BytesIO()
        window = photo[top : top + 375, left : left + 500]
        PIL.Image.fromarray(window).save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    return Examples(
        names=tuple(f"{index:04d}.jpg" for index in range(count)),
        targets=np.arange(count) % 10,
        class_names=tuple("0123456789"),
        source="windows of 500 x 375 pixels of scikit-learn's photographs, JPEG of quality 85",
        encoded=tuple(files),
    )


@dataclasses.dataclass(frozen=True)
class Turn:
    """Seconds for a number of batches: of the core's time, and by the clock."""

    processor: float
    clock: float


def on_one_core(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return dataset.with_options(options)


def take_turn(dataset: tf.data.Dataset, steps: int) -> Turn:
    """Times batches after the first ones; nothing is waiting then, for nobody does but we."""
    batches = iter(dataset)
    for _ in range(WARM_UP):
        next(batches)
    processor, clock = time.process_time(), time.perf_counter()
    for _ in range(steps):
        next(batches)
    turn = Turn(time.process_time() - processor, time.perf_counter() - clock)
    # Or it would go on preparing batches while another one is timed.
    del batches
    gc.collect()
    return turn


def measure(
    datasets: dict[tuple[str, str], tf.data.Dataset], steps: int, rounds: int
) -> dict[tuple[str, str], list[Turn]]:
    turns: dict[tuple[str, str], list[Turn]] = {variant: [] for variant in datasets}
    for number in range(rounds):
        for variant, dataset in datasets.items():
            turns[variant].append(take_turn(dataset, steps))
        print(f"round {number + 1} of {rounds}", flush=True)
    return turns


def table(turns: dict[tuple[str, str], list[Turn]], images: int) -> str:
    lines = [
        "| library | workload | images/s of the core, median (range) | by the clock "
        "| ms an image | beyond its own crop and flip |",
        "|---|---|---|---|---|---|",
    ]
    for (library, workload), taken in turns.items():
        rates = [images / turn.processor for turn in taken]
        cost = 1000 * statistics.median(turn.processor for turn in taken) / images
        beyond = ""
        if workload != PLAIN and (library, PLAIN) in turns:
            plain = turns[library, PLAIN]
            more = [a.processor - b.processor for a, b in zip(taken, plain, strict=True)]
            beyond = f"{1000 * statistics.median(more) / images:.2f}"
        lines.append(
            f"| {library} | {workload} "
            f"| {spread(rates, 0)} "
            f"| {images / statistics.median(turn.clock for turn in taken):.0f} "
            f"| {cost:.2f} | {beyond} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="folder of JPEGs; by default scikit-learn's photographs")
    parser.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--batch-size", type=int, default=32, help="images in a step")
    parser.add_argument("--steps", type=int, default=8, help="batches in a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each variant")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # Linux; before TensorFlow counts the cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    size, batch_size = arguments.image_size, arguments.batch_size
    examples = load(arguments.data) if arguments.data else photographs(max(256, batch_size))
    datasets = {
        (library, workload): on_one_core(
            LIBRARIES[library](examples, size, batch_size, WORKLOADS[workload])
        )
        for workload in arguments.workloads
        for library in arguments.libraries
    }
    turns = measure(datasets, arguments.steps, arguments.rounds)
    kerascv = metadata.version("keras-cv") if "KerasCV" in arguments.libraries else "not measured"
    text = (
        f"# Training input at {size} pixels, batch {batch_size}, one core\n\n"
        f"{hardware()}; Python {platform.python_version()}, TensorFlow {tf.__version__}, "
        f"Keras {keras.__version__}, KerasCV {kerascv}; "
        f"{arguments.rounds} turns of {arguments.steps} batches a variant; "
        f"{len(examples)} images, {examples.source}.\n\n"
        f"{table(turns, arguments.steps * batch_size)}\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
