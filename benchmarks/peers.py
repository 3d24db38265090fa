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
import sys
from importlib import metadata
from pathlib import Path

import turns
from contestant import CONTESTANTS, MATRIX, PASSES, PRECISIONS, PRODUCTS, SIZES, TASKS
from train_step import hardware

from keras_vit import models

BASE = "keras_vit-user"
PACKAGES = ("keras", "tensorflow", "keras-hub", "torch", "timm", "transformers", "openvino")


def library(contestant: str) -> str:
    return "tensorflow" if contestant.startswith("keras") else "torch"


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
        flops = models.count_flops(config) * PASSES[task]
        title = f"{task.capitalize()}, {size}/16, {side} pixels, batch {batch}, {precision}"
        part = f"\n## {title}\n\n{turns.table(found, batch, flops, MATRIX, library, BASE)}\n"
        print(part, flush=True)
        text += part
        if arguments.out:
            arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
