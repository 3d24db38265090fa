"""Which kind of map tells best what a model's answer owes to where?

Takes away, and gives back, the patches of photographs in the order of each kind of map, and of two
maps that know nothing of the model: a Gaussian around the center, and random numbers. The class is
the one that the model says. A map is faithful if its deletion curve falls early and its insertion
curve rises early; what counts is the difference to the two baselines on the same photographs, with
the 95% interval of the bootstrap.

    python benchmarks/faithfulness.py photos/ --model ViTTi16 --weights imagenet
        [--steps 14] [--images 0] [--out results.md] [--picture curves.png]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from rich.progress import track
from train_step import hardware

from keras_vit import data, models, visualization, zoo
from keras_vit.data.pipeline import read_pixels
from keras_vit.evaluation import mean_interval
from keras_vit.visualization import Curves
from keras_vit.visualization.attention_maps import METHODS, maps_of

BASELINES = ("center", "random")
BATCH = 8


def measure(model: keras.Model, examples: data.Examples, steps: int) -> dict[str, Curves]:
    """Returns the curves of every kind of map on all images."""
    preprocessing = models.preprocessing_of(model)
    extractor = models.FeatureExtractor(model)
    found: dict[str, list[Curves]] = {name: [] for name in (*METHODS, *BASELINES)}
    for begin in track(range(0, len(examples), BATCH), description="Photographs"):
        part = range(begin, min(begin + BATCH, len(examples)))
        images = preprocessing.scale(read_pixels([examples.read(i) for i in part], preprocessing))
        classes = model.predict(images, verbose=0).argmax(axis=1)
        seen = extractor.activations_and_gradients(images, classes)
        maps = {method: maps_of(extractor, seen, method) for method in METHODS}
        maps["center"] = np.stack([visualization.center_map(seen.grid)] * len(images))
        maps["random"] = np.stack([visualization.random_map(seen.grid, i) for i in part])
        for name, values in maps.items():
            found[name].append(
                visualization.faithfulness(model, images, values, classes, steps=steps)
            )
    return {
        name: Curves(
            np.concatenate([c.deletion for c in curves]),
            np.concatenate([c.insertion for c in curves]),
        )
        for name, curves in found.items()
    }


def table(found: dict[str, Curves], kind: str) -> str:
    """Returns mean areas, and how much better than each baseline they are."""
    areas = {name: getattr(curves, f"{kind}_area") for name, curves in found.items()}
    sign = -1 if kind == "deletion" else 1
    lines = [
        f"| map | {kind} area | better than center by | better than random by |",
        "|---|---|---|---|",
    ]
    for name, values in areas.items():
        mean, low, high = mean_interval(values)
        cells = [f"{mean:.3f} ({low:.3f} to {high:.3f})"]
        for baseline in BASELINES:
            if name == baseline:
                cells.append("-")
                continue
            mean, low, high = mean_interval(sign * (values - areas[baseline]))
            cells.append(f"{mean:.3f} ({low:.3f} to {high:.3f})")
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="digits", help="labeled images")
    parser.add_argument("--model", default="ViTMicro4", help="name of a constructor")
    parser.add_argument("--weights", default=None, help="a name, file or address")
    parser.add_argument("--steps", type=int, default=14, help="of each curve")
    parser.add_argument("--images", type=int, default=0, help="the first so many; 0 for all")
    parser.add_argument("--out", type=Path, help="Markdown file to write the tables to")
    parser.add_argument("--picture", type=Path, help="picture of the curves to write")
    options = parser.parse_args()
    examples = data.load(options.data)
    number = options.images or (16 if options.data == "digits" else len(examples))
    examples = examples.subset(range(min(number, len(examples))))
    model = zoo.constructor(options.model)(weights=options.weights)
    start = time.perf_counter()
    found = measure(model, examples, options.steps)
    minutes = (time.perf_counter() - start) / 60
    start_from = Path(options.weights).name if options.weights else "random weights"
    text = (
        f"# Faithfulness of maps: {options.model}, {start_from}\n\n{hardware()}; Python "
        f"{platform.python_version()}, Keras {keras.__version__} on {keras.backend.backend()}.\n\n"
        f"{len(examples)} images, {options.steps} steps; {minutes:.0f} minutes. Means with the 95% "
        f"interval of the bootstrap over the images.\n\n{table(found, 'deletion')}\n\n"
        f"{table(found, 'insertion')}\n"
    )
    print(f"\n{text}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    if options.picture:
        figure = visualization.faithfulness_plot(
            {name: curves.deletion for name, curves in found.items()},
            {name: curves.insertion for name, curves in found.items()},
        )
        visualization.save_figure(figure, options.picture)


if __name__ == "__main__":
    main()
