"""How fast is keras_vit beside KerasHub, timm and transformers on this machine?

Every contestant is a process of its own. All get ready, then they take turns, so that whatever else
the machine does falls on all of them; the figures to trust are the ratios within a round. A large
product of matrices takes its turns as well: the share of its rate that a model reaches says how
much is left to win. Needs keras-hub, timm, torch, torchvision, transformers and openvino.

    python benchmarks/peers.py --task inference training --size Ti --batch 8 --precision float32
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import turns
from contestant import CONTESTANTS, MATRIX, PRECISIONS, PRODUCTS, SIZES, TASKS
from train_step import hardware

from keras_vit import models

BASE = "keras_vit-user"
PACKAGES = ("keras", "tensorflow", "keras-hub", "torch", "timm", "transformers", "openvino")
TRAINING = 3  # operations of forward and backward, relative to forward


def table(found: dict[str, dict[str, Any]], batch: int, flops: int) -> str:
    """Returns the table of a race: rates, ratios and shares, each over the turns of one round.

    Args:
        found: What `turns.race` returned.
        batch: Images in a step.
        flops: Floating-point operations of an image.
    """
    limits = {
        name.removesuffix("-product"): [2 * MATRIX**3 / s for s in found[name]["steps"]]
        for name in PRODUCTS
        if name in found
    }
    products = (
        f"{turns.spread([v / 1e9 for v in values], 0)} GFLOP/s in {name}"
        for name, values in limits.items()
    )
    lines = [
        f"Product of two matrices of {MATRIX} rows and columns: {', '.join(products)}.",
        "",
        f"| contestant | images/s | relative to {BASE} | share of the product's rate "
        "| until the first step s | peak memory MB |",
        "|---|---|---|---|---|---|",
    ]
    rates = {
        name: [batch / s for s in row["steps"]]
        for name, row in found.items()
        if name not in PRODUCTS
    }
    for name, values in rates.items():
        base = rates.get(BASE)
        ratios = [a / b for a, b in zip(values, base, strict=True)] if base else []
        limit = limits.get("tensorflow" if name.startswith("keras") else "torch")
        share = [v * flops / m for v, m in zip(values, limit, strict=True)] if limit else []
        lines.append(
            f"| {name} | {turns.spread(values, 1)} "
            f"| {turns.spread(ratios, 2) if ratios else ''} "
            f"| {f'{statistics.median(share):.0%}' if share else ''} "
            f"| {found[name]['first']:.0f} | {found[name]['peak'] / 1e6:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", nargs="+", choices=TASKS, default=["inference"])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["Ti"])
    parser.add_argument("--batch", nargs="+", type=int, default=[8], help="images in a step")
    parser.add_argument("--image-size", nargs="+", type=int, default=[224], help="in pixels")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--seconds", type=float, default=3, help="of a turn")
    parser.add_argument("--out", type=Path, help="Markdown file to write the tables to")
    arguments = parser.parse_args()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    text = (
        f"# Beside other libraries\n\n{hardware()}; Python {platform.python_version()}, "
        f"{versions}.\n{arguments.rounds} turns of {arguments.seconds:g} s each; medians, and the "
        "range in brackets.\n"
    )
    for task, size, precision, side, batch in itertools.product(
        arguments.task, arguments.size, arguments.precision, arguments.image_size, arguments.batch
    ):
        competing = [
            name
            for name, contestant in {**CONTESTANTS, **PRODUCTS}.items()
            if name in (*arguments.contestants, *PRODUCTS) and contestant.competes(task, precision)
        ]
        options = ["--task", task, "--size", size, "--precision", precision]
        options += ["--batch", str(batch), "--image-size", str(side)]
        script = str(Path(__file__).with_name("contestant.py"))
        commands = {name: [sys.executable, script, name, *options] for name in competing}
        found = turns.race(commands, arguments.rounds, arguments.seconds)
        config = models.size(f"{size}/16").replace(image_size=(side, side))
        flops = models.count_flops(config) * (TRAINING if task == "training" else 1)
        title = f"{task.capitalize()}, {size}/16, {side} pixels, batch {batch}, {precision}"
        part = f"\n## {title}\n\n{table(found, batch, flops)}\n"
        print(part, flush=True)
        text += part
        if arguments.out:
            arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
