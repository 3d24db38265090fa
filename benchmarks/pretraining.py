"""Does pre-training without labels teach anything?

Pre-trains on a folder of class folders, whose labels are not looked at, and then asks how well a
linear classifier (logistic regression on the mean of the patches' tokens) tells the classes of
the images held out: from features before any training, of several seeds, and from those of
`last.keras`. The held-out images are seen by neither.

    python benchmarks/pretraining.py [photos/] [--method mae] [--model ViTMicro4]
        [--image-size 48] [--epochs 12] [--run runs/mae] [--out results.md]

Without a folder scikit-learn's digits serve, at 16 pixels.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from train_step import hardware

from keras_vit import data, models, zoo
from keras_vit.runs.config import METHODS
from keras_vit.training import PretrainConfig, Run, pretrain, pretraining_recipe

SEEDS = (1, 2, 3)
# Inverse strengths of the regularisation; the best one on a quarter of the training part counts.
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)


def features(network: keras.Model, examples: data.Examples) -> np.ndarray:
    """Returns the mean of the patches' tokens for each image, (N, D)."""
    preprocessing = models.preprocessing_of(network)
    prefix = models.config_of(network).num_prefix_tokens
    tokens = keras.Model(network.inputs, network.get_layer("encoder_norm").output)
    dataset = data.evaluation_dataset(examples, preprocessing, batch_size=64)
    found = [tokens.predict_on_batch(x)[:, prefix:].mean(axis=1) for x, _ in dataset]
    return np.concatenate(found)


def probe(network: keras.Model, training: data.Examples, held_out: data.Examples) -> float:
    """Returns the accuracy of a linear classifier on the images held out."""
    x, y = features(network, training), training.targets
    chosen = np.random.default_rng(0).permutation(len(y)) < len(y) // 4

    def fitted(strength: float, part: np.ndarray) -> Pipeline:
        regression = LogisticRegression(C=strength, max_iter=2000)
        return make_pipeline(StandardScaler(), regression).fit(x[part], y[part])

    scores = [fitted(c, ~chosen).score(x[chosen], y[chosen]) for c in STRENGTHS]
    best = fitted(STRENGTHS[int(np.argmax(scores))], np.full(len(y), True))
    return float(best.score(features(network, held_out), held_out.targets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--method", choices=tuple(METHODS), default="mae")
    parser.add_argument("--model", default="ViTMicro4")
    parser.add_argument("--image-size", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=None)
    parser.add_argument("--learning-rate", type=float, default=None)
    parser.add_argument("--run", type=Path, help="run folder to keep")
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    options = parser.parse_args()
    size = options.image_size or (16 if options.data == "digits" else 48)
    folder = options.run or Path(tempfile.mkdtemp()) / "run"
    recipe = pretraining_recipe("photographs").replace(
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        image_size=(size, size),
    )
    config = PretrainConfig(options.data, options.model, method=options.method, recipe=recipe)
    start = time.perf_counter()
    pretrain(config, folder)
    minutes = (time.perf_counter() - start) / 60

    run = Run(folder)
    examples = data.load(options.data)
    training, held_out = (examples.subset(part) for part in data.read_split(run.split, examples))
    with run.history.open(newline="") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file)]
    random = []
    for seed in SEEDS:
        keras.utils.set_random_seed(seed)
        network = zoo.constructor(options.model)(
            include_top=False, weights=None, input_shape=(size, size, 3)
        )
        random.append(probe(network, training, held_out))
    learnt = probe(keras.saving.load_model(run.last), training, held_out)
    seeds = ", ".join(f"{accuracy:.4f}" for accuracy in random)
    majority = np.bincount(held_out.targets).max() / len(held_out)
    text = (
        f"# Pre-training without labels: {options.method}, {options.model} at {size} pixels\n\n"
        f"{hardware()}; Python {platform.python_version()}, TensorFlow {tf.__version__}, Keras "
        f"{keras.__version__}.\n\n"
        f"{options.epochs} epochs of {len(training)} images, batch {recipe.batch_size}, highest "
        f"learning rate {recipe.learning_rate:g}: {minutes:.1f} minutes. Validation loss "
        f"{losses[0]:.4f} after the first epoch, {losses[-1]:.4f} after the last.\n\n"
        f"| features | accuracy of a linear classifier on the {len(held_out)} images held out |\n"
        "|---|---|\n"
        f"| the most frequent class | {majority:.4f} |\n"
        f"| random weights, {len(SEEDS)} seeds | {seeds} |\n"
        f"| pre-trained | {learnt:.4f} |\n"
    )
    print(f"\n{text}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
