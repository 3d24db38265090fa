"""Which recipe is best for few images of each class?

Draws images of each class at random, trains with each recipe and compares the accuracy on the same
held-out images. The accuracy of every run is written to a file at once, and runs that are in the
file are not repeated.

    python benchmarks/few_images.py flowers/ --weights imagenet [--model ViTTi16]
        [--images 5 10 50 200] [--draws 5] [--test 500] [--out few_images.json]
        [--recipes finetune probe lora,learning_rate=0.001]
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

from keras_vit import data, evaluation, files, training

RECIPES = ("finetune", "probe", "probe_then_finetune", "lora")


def recipe_of(text: str) -> training.Recipe:
    """Returns the recipe `name` or `name,field=value,...`."""
    name, *changes = text.split(",")
    fields = {key: yaml.safe_load(value) for key, _, value in (c.partition("=") for c in changes)}
    return training.recipe(name).replace(**fields)


def drawn(
    examples: data.Examples, images: int, draw: int, test: int
) -> tuple[list[int], list[int]]:
    """Returns indices of training images, `images` of each class, and of the test images."""
    order = np.random.default_rng(0).permutation(len(examples))
    held_out, rest = order[:test], order[test:]
    rest = np.random.default_rng([1, draw]).permutation(rest)
    labels = np.asarray(examples.targets)[rest]
    chosen = [rest[labels == k][:images] for k in range(len(examples.class_names))]
    return np.concatenate(chosen).tolist(), held_out.tolist()


def accuracy(
    options: argparse.Namespace, examples: data.Examples, recipe: str, images: int, draw: int
) -> float:
    """Returns the accuracy on the test images after training with a recipe."""
    chosen, held_out = drawn(examples, images, draw, options.test)
    parts = {"train": chosen, "validation": held_out}
    with tempfile.TemporaryDirectory() as folder:
        for part, indices in parts.items():
            for index in indices:
                path = Path(folder, "data", part, examples.shown(index)[0], f"{index}.jpg")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(examples.read(index))
        config = training.RunConfig(
            str(Path(folder, "data")),
            options.model,
            weights=options.weights,
            recipe=recipe_of(recipe).replace(seed=draw),
        )
        found = training.train(config, Path(folder) / "run", tensorboard=False)
    keras.backend.clear_session()
    return float(found.accuracy)


def table(found: dict[str, float], images: list[int], recipes: list[str]) -> str:
    """Returns a Markdown table of mean accuracies with 95% intervals over the draws."""
    rows = [["recipe", *(f"{number} images" for number in images)], ["---"] * (1 + len(images))]
    for recipe in recipes:
        cells = []
        for number in images:
            values = [v for k, v in found.items() if k.rpartition(" ")[0] == f"{recipe} {number}"]
            if len(values) > 1:
                mean, low, high = evaluation.mean_interval(values)
                cells.append(f"{mean:.3f} ({low:.3f} to {high:.3f})")
            else:
                cells.append(f"{values[0]:.3f}" if values else "")
        rows.append([recipe, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="ViTTi16")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--images", type=int, nargs="+", default=[5, 10, 50, 200])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path("few_images.json"))
    options = parser.parse_args()
    examples = data.load(options.data)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    for draw in range(options.draws):
        for images in options.images:
            for recipe in options.recipes:
                key = f"{recipe} {images} {draw}"
                if key not in found:
                    found[key] = accuracy(options, examples, recipe, images, draw)
                    files.write_json(options.out, found)
    print(f"{hardware()}.\n\n{table(found, options.images, options.recipes)}")


if __name__ == "__main__":
    main()
