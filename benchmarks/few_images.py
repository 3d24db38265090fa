"""Which recipe is best for few images of each class, and for classes of unequal size?

Draws images of each class at random, trains with each recipe and evaluates on other images, the
same for all runs. The result of every run is written to a file at once, and runs that are in the
file are not repeated, so that the command can be stopped and started again. `finetune` has the
number of epochs of `keras-vit train` without --recipe and --epochs, at least 100 steps; the other
recipes have their own, or `epochs=` of their own.

    python benchmarks/few_images.py flowers/ --weights imagenet [--model ViTTi16]
        [--images 5 10 50 200] [--draws 5] [--test 500] [--out few_images.json]
        [--recipes finetune probe lora,learning_rate=0.001]

    python benchmarks/few_images.py flowers/ --weights imagenet --long-tail 600 20
        --recipes finetune finetune,sampling=balanced finetune,logit_adjustment=1
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import yaml
from train_step import hardware

from keras_vit import data, evaluation, files, tasks, training
from keras_vit.cli.options import absolute
from keras_vit.constants import FEW_STEPS
from keras_vit.runs.named_recipes import FEW_IMAGES

RECIPES = ("finetune", "probe", "probe_then_finetune", "lora")
VALIDATION = 20  # images, whose results are not used

Results = dict[str, dict[str, float]]


def recipe_of(text: str) -> training.Recipe:
    """Returns the recipe `name` or `name,field=value,...`."""
    name, *changes = text.split(",")
    fields = {key: yaml.safe_load(value) for key, _, value in (c.partition("=") for c in changes)}
    return training.recipe(name).replace(**fields)


def least_steps(text: str) -> int:
    """Returns the minimum number of steps of a recipe, as in `keras-vit train`.

    Only the default recipe has one, unless the number of epochs is given.
    """
    name, *changes = text.split(",")
    is_default = name == RECIPES[0] and not any(c.partition("=")[0] == "epochs" for c in changes)
    return FEW_STEPS if is_default else 0


def drawn(examples: data.Examples, sizes: list[int], draw: int, test: int) -> dict[str, list[int]]:
    """Returns indices of the training images, `sizes` of each class, and of the other images."""
    order = np.random.default_rng(0).permutation(len(examples))
    held_out, rest = order[: test + VALIDATION], order[test + VALIDATION :]
    rest = np.random.default_rng([1, draw]).permutation(rest)
    labels = np.asarray(examples.targets)[rest]
    counts = np.bincount(labels, minlength=len(sizes)).tolist()
    pairs = zip(examples.class_names, zip(counts, sizes, strict=True), strict=True)
    if few := {name: pair for name, pair in pairs if not 0 < pair[1] <= pair[0]}:
        raise ValueError(
            "`--images` and `--long-tail` must be at least 1, and at most the number of images of "
            f"each class besides {test} for `--test` and {VALIDATION} for validation. Pass smaller "
            f"numbers. Received: {examples.source}, with (images of the class, asked for) = {few}"
        )
    chosen = [rest[labels == k][:size] for k, size in enumerate(sizes)]
    return {
        "train": np.concatenate(chosen).tolist(),
        "validation": held_out[test:].tolist(),
        "test": held_out[:test].tolist(),
    }


def scores(
    options: argparse.Namespace, examples: data.Examples, recipe: str, sizes: list[int], draw: int
) -> dict[str, float]:
    """Returns the scores on the test images after training with a recipe."""
    parts = drawn(examples, sizes, draw, options.test)
    with tempfile.TemporaryDirectory() as folder:
        for part in ("train", "validation"):
            for index in parts[part]:
                path = Path(folder, "data", part, examples.shown(index)[0], f"{index}.jpg")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(examples.read(index))
        config = training.RunConfig(
            str(Path(folder, "data")),
            options.model,
            weights=options.weights,
            recipe=recipe_of(recipe).replace(seed=draw),
        )
        training.train(
            config,
            Path(folder) / "run",
            tensorboard=False,
            smaller_batches=True,
            least_steps=least_steps(recipe),
            few_images={} if "layer_decay" in recipe else FEW_IMAGES,
        )
        model = training.Run(Path(folder) / "run").model()
        found = tasks.evaluate(model, examples.subset(parts["test"]), verbose=0)
    keras.backend.clear_session()
    return {"accuracy": float(found.accuracy), "macro_f1": found.macro_f1}


def stored(path: Path, source: dict[str, object]) -> Results:
    """Returns the results in a file; raises `ValueError` if they are of another `source`."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    if content.get("source") != source:
        raise ValueError(
            "`--out` must be a new file, or one with results of the same data, model, weights and "
            f"number of test images. Received: {path} with {content.get('source')}, not {source}"
        )
    return content["results"]


def cell(values: list[float]) -> str:
    """Formats a mean over the draws with its 95% interval."""
    if len(values) < 2:
        return f"{values[0]:.3f}" if values else ""
    mean, low, high = evaluation.mean_interval(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def table(found: Results, columns: list[str], recipes: list[str], metric: str) -> str:
    """Returns a Markdown table of means over the draws, and of differences to the first recipe."""
    rows = [["recipe", *columns], ["---"] * (1 + len(columns))]
    for recipe in recipes:
        cells = []
        for column in columns:
            keys = [k.rpartition(" ")[2] for k in found if k.startswith(f"{recipe} {column} ")]
            values = [found[f"{recipe} {column} {draw}"][metric] for draw in keys]
            firsts = [found.get(f"{recipes[0]} {column} {draw}") for draw in keys]
            text = cell(values)
            if recipe != recipes[0] and values and None not in firsts:
                pairs = zip(values, firsts, strict=True)
                text += f"; {cell([value - first[metric] for value, first in pairs if first])}"
            cells.append(text)
        rows.append([recipe, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="ViTTi16")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--images", type=int, nargs="+", default=[5, 10, 50, 200])
    parser.add_argument("--long-tail", type=int, nargs=2, help="of the most and least common class")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path("few_images.json"))
    options = parser.parse_args()
    examples = data.load(options.data)
    classes = len(examples.class_names)
    sets = {f"{number} images": [number] * classes for number in options.images}
    if options.long_tail:
        largest, smallest = options.long_tail
        tail = np.geomspace(largest, smallest, classes).round().astype(int)
        ranks = np.argsort(np.argsort(-np.bincount(examples.targets), kind="stable"))
        sets = {f"long tail of {largest} to {smallest} images": tail[ranks].tolist()}
    for sizes in sets.values():
        drawn(examples, sizes, 0, options.test)  # an error before training; all draws are alike
    source = {
        "data": absolute(options.data),
        "images": len(examples),
        "model": options.model,
        "weights": absolute(options.weights),
        "test": options.test,
    }
    found = stored(options.out, source)
    for draw in range(options.draws):
        for column, sizes in sets.items():
            for recipe in options.recipes:
                key = f"{recipe} {column} {draw}"
                if key not in found:
                    found[key] = scores(options, examples, recipe, sizes, draw)
                    files.write_json(options.out, {"source": source, "results": found})
    print(f"{hardware()}.\n")
    for metric in ("accuracy", "macro_f1"):
        print(f"{metric}\n\n{table(found, list(sets), options.recipes, metric)}\n")


if __name__ == "__main__":
    main()
