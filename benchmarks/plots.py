"""Draws what `peers.py` found: for each race the rate of each contestant, relative to ours.

There is a picture for each task, model and precision, and in it a panel for each race. A bar is the
median of the ratios within a round, the line on it their range.

    python benchmarks/plots.py benchmarks/results/peers_....json --folder docs/images
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # figures go to files

import matplotlib.pyplot as plt
from peers import BASE, read
from turns import PRODUCT

#: The color of each library.
COLORS = {
    "keras_vit": "tab:blue",
    "keras_hub": "tab:orange",
    "timm": "tab:green",
    "transformers": "tab:red",
}


def draw(races: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws races of one task, model and precision side by side.

    Args:
        races: What `peers.py` wrote, of one or more batches and image sizes.
        path: The picture to write.
    """
    names = [
        name
        for name in dict.fromkeys(name for race in races for name in race["found"])
        if not name.endswith(PRODUCT)
    ]
    figure, axes = plt.subplots(
        ncols=len(races),
        figsize=(1.8 + 2.2 * len(races), 0.8 + 0.28 * len(names)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, race in zip(axes[0], races, strict=True):
        base = race["found"][BASE]["steps"]
        for row, name in enumerate(names):
            if name not in race["found"]:
                continue
            ratios = [a / b for a, b in zip(base, race["found"][name]["steps"], strict=True)]
            middle = statistics.median(ratios)
            color = COLORS[name.split("-", maxsplit=1)[0]]
            axis.barh(row, middle, color=color, alpha=1 if name == BASE else 0.6)
            axis.plot([min(ratios), max(ratios)], [row, row], color="black", linewidth=1)
            axis.annotate(
                f"{middle:.2f}", (0, row), (3, 0), textcoords="offset points", va="center"
            )
        axis.axvline(1, color="black", linewidth=0.5)
        axis.set_title(f"{race['image_size']} pixels, batch {race['batch']}", fontsize="medium")
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    figure.supxlabel(f"images a second, relative to {BASE}", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="JSON file that peers.py wrote")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"), help="of the pictures")
    arguments = parser.parse_args()
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for race in read(arguments.results):
        if BASE in race["found"]:
            groups.setdefault((race["task"], race["size"], race["precision"]), []).append(race)
    if not groups:
        parser.error(f"RESULTS must hold races with {BASE}. Received: {arguments.results}")
    for (task, size, precision), races in groups.items():
        path = arguments.folder / f"performance_{task}_{size}_{precision}.png"
        draw(sorted(races, key=lambda race: (race["image_size"], race["batch"])), path)
        print(f"Written: {path}")


if __name__ == "__main__":
    main()
