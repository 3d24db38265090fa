"""Where does the time of a step go?

Records steps of a Keras contestant (`contestant.py`) with TensorFlow's profiler and adds up the
time in the kernels of each kind of operator. Kernels that run at the same time both count, and what
one leaves to other threads counts once: the shares say what to look at, not what a change will
save. What XLA has compiled, such as chains of element-wise operations in training, is one row.

    python benchmarks/operators.py [--task inference training] [--size Ti] [--precision bfloat16]
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from contestant import CONTESTANTS, PRECISIONS, SIZES, TASKS
from tensorflow.tsl.profiler.protobuf import xplane_pb2
from train_step import hardware

LIBRARIES, MODES = ("keras_vit", "keras_hub"), ("graph", "user")
#: An operator's event is called "name of the node:kind of operator".
OPERATOR = re.compile(r"[^:]:(_?[A-Z]\w*)$")
#: The event of a function that XLA has compiled for the processor.
COMPILED, XLA = "CpuExecutable::ExecuteAsyncOnStream", "compiled by XLA"

Profile = dict[str, tuple[float, float]]


def profile(contestant: str, options: argparse.Namespace) -> tuple[float, Profile]:
    """Returns the seconds of a step and, by kind of operator, its seconds and calls a step."""
    run = CONTESTANTS[contestant].prepare(options)
    run(2)
    # Without Python's own events: there may be more of them than the profiler keeps.
    tracing = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, tracing):
            start = time.perf_counter()
            run(options.steps)
            seconds = (time.perf_counter() - start) / options.steps
        (file,) = Path(folder).rglob("*.xplane.pb")
        recorded = xplane_pb2.XSpace.FromString(file.read_bytes())
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for plane in recorded.planes:
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            match = OPERATOR.search(name)
            if match or name == COMPILED:
                kind = match[1] if match else XLA
                times[kind] += event.duration_ps / 1e12 / options.steps
                calls[kind] += 1 / options.steps
    return seconds, {kind: (spent, calls[kind]) for kind, spent in times.most_common()}


def table(found: Profile, least: float) -> str:
    """Returns the table of a profile; kinds with less than a share of the time are one row."""
    total = sum(spent for spent, _ in found.values())
    shown = {kind: row for kind, row in found.items() if row[0] >= least * total}
    rest = [row for kind, row in found.items() if kind not in shown]
    label = f"{len(rest)} other kinds"
    rows = {**shown, label: (sum(spent for spent, _ in rest), sum(calls for _, calls in rest))}
    lines = (
        f"| {kind} | {spent / total:.1%} | {spent * 1e3:.1f} | {calls:.0f} |"
        for kind, (spent, calls) in rows.items()
    )
    return "\n".join(
        ["| operator | share | ms a step | calls a step |", "|---|---|---|---|", *lines]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", choices=LIBRARIES, default="keras_vit")
    parser.add_argument("--mode", choices=MODES, default="graph")
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["Ti"])
    parser.add_argument("--batch", type=int, default=16, help="images in a step")
    parser.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=5, help="that are recorded")
    parser.add_argument("--least", type=float, default=0.01, help="share that has its own row")
    parser.add_argument("--out", type=Path, help="Markdown file to write the tables to")
    options = parser.parse_args()
    contestant = f"{options.library}-{options.mode}"
    text = (
        f"# Operators of {contestant}\n\n{hardware()}, {options.threads} threads; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}, Keras {keras.__version__}; "
        f"means of {options.steps} steps, recorded.\n"
    )
    for task, size, precision in itertools.product(options.task, options.size, options.precision):
        case = {"task": task, "size": size, "precision": precision}
        seconds, found = profile(contestant, argparse.Namespace(**vars(options) | case))
        spent = sum(spent for spent, _ in found.values())
        part = (
            f"\n## {task.capitalize()}, {size}/16, {options.image_size} pixels, "
            f"batch {options.batch}, {precision}\n\n{seconds * 1e3:.0f} ms a step, of "
            f"operators {spent * 1e3:.0f}.\n\n{table(found, options.least)}\n"
        )
        print(part, flush=True)
        text += part
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
