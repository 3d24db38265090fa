"""Kinds of position embeddings, compared by the validation accuracy of small models.

Repeats the ablation of section D.4 of https://arxiv.org/abs/2010.11929: a small Vision Transformer
is trained from scratch with each kind and several seeds. Every seed has its own split and initial
weights, the same for all kinds. Prints a table with the mean accuracy, its 95% interval (Student's
t), and the mean difference from learned positions, paired by seed; writes it as CSV with `--to`.

    python benchmarks/positions.py --data digits --to results/positions.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from scipy import stats

from keras_vit import data, models
from keras_vit.preprocessing import Preprocessing

KINDS = ("none", "learned", "learned_2d", "sincos_2d", "relative", "rotary")


def pixels(source: str, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns all images, scaled to [-1, 1], and their labels."""
    examples = data.load(source)
    batches = data.evaluation_dataset(examples, Preprocessing(size=side), batch_size=256)
    images, labels = zip(*((np.asarray(x), np.asarray(y)) for x, y, *_ in batches), strict=True)
    targets = np.concatenate(labels)
    return np.concatenate(images), targets.argmax(axis=-1) if targets.ndim > 1 else targets


def accuracy(
    kind: str, seed: int, images: np.ndarray, labels: np.ndarray, options: argparse.Namespace
) -> float:
    """Trains a model on four fifths of the images; returns its accuracy on the others."""
    order = np.random.default_rng(seed).permutation(len(images))
    held_out, training = np.split(order, [len(order) // 5])
    keras.utils.set_random_seed(seed)
    config = models.ViTConfig(
        **{"hidden_size": 64, "num_layers": 4, "num_heads": 4, "mlp_dim": 128},
        **{"patch_size": options.patch, "image_size": images.shape[1:3]},
        **{"classes": int(labels.max()) + 1, "position_embedding": kind},
    )
    model = models.build(config)
    steps = options.epochs * -(-len(training) // options.batch)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=options.rate, warmup_steps=steps // 10
    )
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.05),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    chosen = images[training], labels[training]
    model.fit(*chosen, batch_size=options.batch, epochs=options.epochs, verbose=0)
    found = model.evaluate(images[held_out], labels[held_out], verbose=0, return_dict=True)
    return float(found["accuracy"])


def row(kind: str, found: np.ndarray, learned: np.ndarray) -> dict[str, str]:
    """Returns the line of the table for one kind."""

    def interval(values: np.ndarray) -> float:
        deviation = values.std(ddof=1) / np.sqrt(len(values))
        return float(stats.t.ppf(0.975, len(values) - 1) * deviation)

    difference = found - learned
    return {
        "positions": kind,
        "accuracy": f"{found.mean():.4f} ± {interval(found):.4f}",
        "difference from learned": f"{difference.mean():+.4f} ± {interval(difference):.4f}",
        "seeds": " ".join(f"{value:.4f}" for value in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits", help="images, as for `keras-vit train`")
    parser.add_argument("--side", type=int, default=8, help="height and width in pixels")
    parser.add_argument("--patch", type=int, default=1, help="side of a patch in pixels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--to", type=Path, help="CSV file of the table")
    options = parser.parse_args()
    images, labels = pixels(options.data, options.side)
    results: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(options.seeds):
        for kind in KINDS:
            start = time.perf_counter()
            results[kind].append(accuracy(kind, seed, images, labels, options))
            seconds = time.perf_counter() - start
            print(f"{kind}, seed {seed}: {results[kind][-1]:.4f} ({seconds:.0f} s)", flush=True)
    found = {kind: np.array(values) for kind, values in results.items()}
    rows = [row(kind, found[kind], found["learned"]) for kind in KINDS]
    for line in rows:
        print("  ".join(f"{value:<24}" for value in line.values()))
    if options.to:
        with options.to.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
