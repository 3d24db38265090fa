"""Does training wait for its images?

Trains as `keras-vit train` does, with the heaviest augmentation of the built-in recipes by default,
and times how long each step waits for its batch beside how long it computes.

    python benchmarks/input_wait.py [--data photos/] [--model ViTTi16] [--recipe deit] [--steps 20]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from input_pipeline import photographs
from train_step import hardware

from keras_vit import models, zoo
from keras_vit.data import load, training_dataset
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training import recipe
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.training_model import TrainingModel

WARM_UP = 3  # steps that trace and fill the prefetched batches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="folder of JPEGs; by default scikit-learn's photographs")
    parser.add_argument("--model", default="ViTTi16", help="name of a constructor")
    parser.add_argument("--recipe", default="deit", help="whose augmentation is used")
    parser.add_argument("--batch-size", type=int, default=16, help="images in a step")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    arguments = parser.parse_args()
    batch_size = arguments.batch_size
    examples = load(arguments.data) if arguments.data else photographs(4 * batch_size)
    chosen = recipe(arguments.recipe).replace(batch_size=batch_size)
    network = zoo.constructor(arguments.model)(
        weights=None, classes=len(examples.class_names), classifier_activation=None
    )
    training_model = TrainingModel(ClassificationObjective(network))
    optimizer = build_optimizer(chosen, network, arguments.steps, "float32")
    training_model.compile(optimizer=optimizer, jit_compile=False)
    dataset = training_dataset(
        examples,
        models.preprocessing_of(network),
        chosen.augmentation,
        batch_size=batch_size,
        epochs=1_000_000,
    )
    waits, computations = [], []
    batches = iter(dataset)
    for step in range(WARM_UP + arguments.steps):
        start = time.perf_counter()
        images, labels = next(batches)
        arrived = time.perf_counter()
        training_model.train_on_batch(images, labels)
        if step >= WARM_UP:
            waits.append(1000 * (arrived - start))
            computations.append(1000 * (time.perf_counter() - arrived))
    share = sum(waits) / (sum(waits) + sum(computations))
    text = (
        f"# Waiting for images: {arguments.model}, augmentation of {arguments.recipe}, batch "
        f"{batch_size}\n\n"
        f"{hardware()}; Python {platform.python_version()}, TensorFlow {tf.__version__}, Keras "
        f"{keras.__version__}; {arguments.steps} steps after {WARM_UP} others.\n\n"
        "| | ms, median (longest) |\n|---|---|\n"
        f"| a step waits for its batch | {statistics.median(waits):.2f} ({max(waits):.2f}) |\n"
        f"| it computes | {statistics.median(computations):.0f} ({max(computations):.0f}) |\n\n"
        f"{100 * share:.2f}% of the time was spent waiting.\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
