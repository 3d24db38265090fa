"""What do merging and pruning of tokens cost in accuracy, and what do they bring in speed?

A fine-tuned model and copies of it that let tokens go (`keras_vit.reduce_tokens`) take turns on the
images that its run held out, a batch a turn, so that whatever else the machine does falls on all of
them; the speeds to trust are the ratios within a round. Without a run it takes digits and random
weights: then the speeds alone mean something.

    python benchmarks/token_merging.py runs/flowers [--images 0] [--batch-size 16]
        [--per-block 4 8 12 16] [--out results.md] [--picture curve.png]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from matplotlib.figure import Figure
from rich.progress import track
from train_step import hardware
from turns import spread

from keras_vit import data, models, training, visualization, zoo
from keras_vit.evaluation.class_alignment import align
from keras_vit.evaluation.statistics import wilson
from keras_vit.models import last_activation
from keras_vit.visualization.drawing import COLORS, GRAY, open_axes

METHODS = {"merge": "merging (ToMe)", "prune": "pruning by the class token"}


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured of one copy.

    Args:
        tokens: That leave the last block.
        classes: That it says, one for each image.
        rates: Images/s of each turn.
    """

    tokens: int
    classes: np.ndarray
    rates: list[float]


def measure(
    model: keras.Model, examples: data.Examples, numbers: list[int], batch_size: int
) -> dict[tuple[str, int], Found]:
    """Lets the model and its copies take turns; the model is `("merge", 0)`."""
    network, preprocessing = last_activation.with_probabilities(model)
    copies = {("merge", 0): network} | {
        (method, n): models.reduce_tokens(network, n, method) for n in numbers for method in METHODS
    }
    classes: dict[tuple[str, int], list[np.ndarray]] = {key: [] for key in copies}
    rates: dict[tuple[str, int], list[float]] = {key: [] for key in copies}
    dataset = data.evaluation_dataset(examples, preprocessing, batch_size=batch_size)
    before = 0
    for images, _ in track(dataset, "Batches", -(-len(examples) // batch_size)):
        images = images.numpy()
        for key, copy in copies.items():
            if len(images) != before:  # the first batch, and a smaller last one
                copy.predict_on_batch(images)  # traces
            start = time.perf_counter()
            classes[key].append(copy.predict_on_batch(images).argmax(axis=1))
            rates[key].append(len(images) / (time.perf_counter() - start))
        before = len(images)
    return {
        key: Found(_tokens(copy), np.concatenate(classes[key]), rates[key])
        for key, copy in copies.items()
    }


def table(found: dict[tuple[str, int], Found], labels: np.ndarray) -> str:
    lines = [
        "| tokens that go | in each block | left at the end | accuracy (95% interval) "
        "| same class as the full model | images/s, median (range) "
        "| relative to the full model, median (range) |",
        "|---|---|---|---|---|---|---|",
    ]
    base = found["merge", 0]
    for (method, number), row in found.items():
        right = int((row.classes == labels).sum())
        low, high = wilson(right, len(labels))
        lines.append(
            f"| {METHODS[method] if number else 'none'} | {number} | {row.tokens} "
            f"| {right / len(labels):.3f} ({low:.3f} to {high:.3f}) "
            f"| {np.mean(row.classes == base.classes):.3f} | {spread(row.rates, 1)} "
            f"| {spread(_ratios(row, base), 2)} |"
        )
    return "\n".join(lines)


def picture(found: dict[tuple[str, int], Found], labels: np.ndarray) -> Figure:
    """Draws accuracy, and agreement with the full model, over the speed relative to it."""
    base = found["merge", 0]
    figure = Figure(figsize=(8.2, 3.3), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    for axes, title, expected in (
        (panels[0], "accuracy", labels),
        (panels[1], "same class as the full model", base.classes),
    ):
        axes.axhline(np.mean(base.classes == expected), color=GRAY, linestyle=":", linewidth=1)
        for (method, name), color in zip(METHODS.items(), COLORS, strict=False):
            rows = {n: row for (m, n), row in found.items() if m == method or not n}
            speeds = [statistics.median(_ratios(row, base)) for row in rows.values()]
            shares = [np.mean(row.classes == expected) for row in rows.values()]
            axes.plot(speeds, shares, marker="o", markersize=4, color=color, label=name)
            for number, speed, share in zip(rows, speeds, shares, strict=True):
                axes.annotate(
                    str(number), (speed, share), (0, 5), textcoords="offset points", fontsize=7
                )
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("images/s relative to the full model")
        open_axes(axes)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _ratios(row: Found, base: Found) -> list[float]:
    return [a / b for a, b in zip(row.rates, base.rates, strict=True)]


def _tokens(model: keras.Model) -> int:
    """Returns how many tokens reach the last norm."""
    return model.get_layer("encoder_norm").input.shape[1]


def _setting(run: Path | None) -> tuple[keras.Model, data.Examples, str]:
    if run is None:
        model = zoo.ViTMicro4(weights=None, input_shape=(32, 32, 3), classes=10)
        return model, data.load("digits").subset(range(256)), "ViTMicro4, random weights, digits"
    folder = training.Run(run)
    if not folder.best.is_file() or not folder.split.is_file():
        raise SystemExit(f"{run} must be the folder of a run, with best.keras and split.csv")
    examples = data.load(folder.read_config().data)
    model = keras.saving.load_model(folder.best, compile=False)
    _, held_out = data.read_split(folder.split, examples)
    name = f"{folder.read_config().model}, fine-tuned on {Path(folder.read_config().data).name}"
    return model, examples.subset(held_out), name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", nargs="?", type=Path, help="run folder of keras-vit train")
    parser.add_argument("--images", type=int, default=0, help="so many at random; 0 for all")
    parser.add_argument("--batch-size", type=int, default=16, help="images in a turn")
    parser.add_argument("--per-block", type=int, nargs="+", default=[4, 8, 12, 16])
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    parser.add_argument("--picture", type=Path, help="picture of the curve to write")
    options = parser.parse_args()
    model, examples, name = _setting(options.run)
    total, kind = len(examples), "images held out" if options.run else "digits"
    number = f"All {total} {kind}"
    if options.images:
        chosen = np.random.default_rng(0).permutation(len(examples))[: options.images]
        examples = examples.subset(sorted(chosen.tolist()))
        number = f"{len(examples)} of the {total} {kind}, chosen at random"
    found = measure(model, examples, options.per_block, options.batch_size)
    labels = align(models.preprocessing_of(model).class_names, examples)
    note = "" if options.run else " The weights are random: only the speeds mean anything."
    text = (
        f"# Merging and pruning tokens: {name}\n\n{hardware()}; Python "
        f"{platform.python_version()}, Keras {keras.__version__} on {keras.backend.backend()}.\n\n"
        f"{number}; batch {options.batch_size}, a turn of each for every batch.{note}\n\n"
        f"{table(found, labels)}\n"
    )
    print(f"\n{text}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    if options.picture:
        visualization.save_figure(picture(found, labels), options.picture)


if __name__ == "__main__":
    main()
