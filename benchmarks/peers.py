"""How fast is keras_vit beside KerasHub, timm and transformers on this machine?

Every contestant is a process of its own. All get ready, then they take turns, so that whatever else
the machine does falls on all of them; the figures to trust are the ratios within a round. A large
product of matrices takes its turns as well: the share of its rate that a model reaches says how
much is left to win. With `--out` each race is kept as soon as it is over, and not run again; one
that lacks a contestant asked for is, with those that it has. Needs the extras `[onnx,openvino]` and
what is in `requirements.txt`: `make bench` installs both.

    python benchmarks/peers.py --task inference training --size Ti --batch 8 --precision float32
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import turns
from contestant import CONTESTANTS, MATRIX, PASSES, PRECISIONS, PRODUCTS, SIZES, TASKS
from train_step import hardware

from keras_vit import files, models

BASE = "keras_vit-user"
PACKAGES = (
    "keras",
    "tensorflow",
    "keras-hub",
    "torch",
    "timm",
    "transformers",
    "openvino",
    "onnxruntime",
)

#: Which contestants a library or form has, by the beginnings and the ends of their names.
GROUPS = {
    "ours": ("keras_vit", ("user", "graph", "xla", "optimized")),
    "ours with OpenVINO": ("keras_vit", ("openvino",)),
    "KerasHub": ("keras_hub", ("",)),
    "timm": ("timm", ("",)),
    "transformers": ("transformers", ("",)),
}
COMPARED = (
    ("ours", "KerasHub"),
    ("ours", "timm"),
    ("ours", "transformers"),
    ("ours with OpenVINO", "timm"),
)

NOTE = (
    "Rates are medians of the turns, with the range in brackets, and so are ratios within a round. "
    "`user` is `model.predict` or `model.fit` with a data set, `graph` and `xla` the compiled "
    "function or step alone. PyTorch computes bfloat16 under `torch.autocast`."
)
FASTEST = (
    "First the libraries, each in its mode with the highest rate of those in the race: how many "
    "times as fast, medians and ranges within rounds. `ours` is TensorFlow, without ONNX Runtime; "
    "a field is empty where a library was not in the race."
)


def library(contestant: str) -> str:
    return "tensorflow" if contestant.startswith("keras") else "torch"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, default=["inference"])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["Ti"])
    parser.add_argument("--batch", nargs="+", type=int, default=[8], help="images in a step")
    parser.add_argument("--image-size", nargs="+", type=int, default=[224], help="in pixels")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--seconds", type=float, default=2, help="of a turn")
    parser.add_argument("--out", type=Path, help="JSON file of all races; tables go beside it")
    arguments = parser.parse_args()
    if arguments.out and arguments.out.suffix != ".json":
        parser.error(f"--out must end in .json. Received: {arguments.out}")
    described = setting(arguments)
    races = read(arguments.out) if arguments.out else []
    for task, size, precision, side, batch in itertools.product(
        arguments.task, arguments.size, arguments.precision, arguments.image_size, arguments.batch
    ):
        case = {"task": task, "size": size, "precision": precision}
        case |= {"image_size": side, "batch": batch}
        same = [race for race in races if case.items() <= race.items()]
        there = {name for race in same for name in race["found"]}
        if commands(case, arguments.contestants).keys() <= there:
            print(f"In {arguments.out} already: {title(case)}", flush=True)
            continue
        started = commands(case, [*arguments.contestants, *there])
        found = turns.race(started, arguments.rounds, arguments.seconds)
        races = [race for race in races if race not in same]
        races.append({**case, "setting": described, "found": found})
        print(f"{table(races[-1])}\n", flush=True)
        if arguments.out:
            write(races, arguments.out)
    if arguments.out:
        write(races, arguments.out)  # tables anew, where no race was run


def commands(case: Mapping[str, Any], contestants: Sequence[str]) -> dict[str, list[str]]:
    """Returns what starts each contestant of a race, and each product of matrices."""
    script = str(Path(__file__).with_name("contestant.py"))
    options = [(f"--{name.replace('_', '-')}", str(value)) for name, value in case.items()]
    return {
        name: [sys.executable, script, name, *itertools.chain(*options)]
        for name, contestant in {**CONTESTANTS, **PRODUCTS}.items()
        if name in (*contestants, *PRODUCTS)
        and contestant.competes(case["task"], case["precision"])
    }


def setting(arguments: argparse.Namespace) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return (
        f"{hardware()}; Python {platform.python_version()}, {versions}; "
        f"{arguments.rounds} turns of {arguments.seconds:g} s"
    )


def title(case: Mapping[str, Any]) -> str:
    return (
        f"{case['task'].capitalize()}, {case['size']}/16, {case['image_size']} pixels, "
        f"batch {case['batch']}, {case['precision']}"
    )


def table(race: Mapping[str, Any]) -> str:
    side = race["image_size"]
    config = models.size(f"{race['size']}/16").replace(image_size=(side, side))
    flops = models.count_flops(config) * PASSES[race["task"]]
    rows = turns.table(race["found"], race["batch"], flops, MATRIX, library, BASE)
    return f"## {title(race)}\n\n{race['setting']}.\n\n{rows}"


def summary(races: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of the ratios between libraries, each in its fastest mode of the race."""
    rows = ["| race | " + " | ".join(f"{a} / {b}" for a, b in COMPARED) + " |"]
    rows.append("|---|" + "---|" * len(COMPARED))
    for race in races:
        steps = {name: fastest(race["found"], *of) for name, of in GROUPS.items()}
        cells = [ratio(steps[b], steps[a]) for a, b in COMPARED]
        rows.append(f"| {title(race)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def fastest(found: Mapping[str, Any], start: str, ends: Sequence[str]) -> list[float]:
    """Returns the seconds of the steps of a group's fastest contestant; empty without any."""
    group = [
        found[name]["steps"]
        for name in CONTESTANTS
        if name in found and name.startswith(start) and name.endswith(tuple(ends))
    ]
    return min(group, key=statistics.median, default=[])


def ratio(base: Sequence[float], steps: Sequence[float]) -> str:
    """Returns the ratios of rates, round by round; nothing where one of the two is not there."""
    if not (base and steps):
        return ""
    return turns.spread([a / b for a, b in zip(base, steps, strict=True)], 2)


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def write(races: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes the races in their order, and their tables beside them."""
    races = sorted(races, key=_place)
    files.write_json(path, races)
    parts = ["# Beside other libraries", NOTE, FASTEST, summary(races), *map(table, races)]
    text = "\n\n".join(parts)
    with files.atomic_path(path.with_suffix(".md")) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def _place(race: Mapping[str, Any]) -> tuple[int, ...]:
    listed = (("task", TASKS), ("size", SIZES), ("precision", PRECISIONS))
    places = (list(names).index(race[key]) for key, names in listed)
    return (*places, race["image_size"], race["batch"])


if __name__ == "__main__":
    main()
