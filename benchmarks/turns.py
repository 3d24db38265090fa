"""Contestants that take turns, each in a process of its own.

Whatever else the machine does falls on all of them, so the figures to trust are ratios within a
round. `race` starts the processes; in each of them `answer` computes on request.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

PRODUCT = "-product"  # ends the name of what is no model


def race(
    commands: Mapping[str, Sequence[str]],
    rounds: int,
    seconds: float,
    ahead: Collection[str] = (),
    deadline: float = math.inf,
) -> dict[str, dict[str, Any]]:
    """Lets contestants take turns.

    Args:
        commands: By name, the command that starts a contestant, which calls `answer`.
        rounds: Turns of each.
        seconds: Length of a turn.
        ahead: Who gets ready while the others do so one after the other.
        deadline: No round begins that would end after it, in seconds of `time.perf_counter`; there
            is always one round.

    Returns:
        By name the seconds of a step in each turn, `"steps"`; the seconds until the first,
        `"first"`; and the peak memory in bytes, `"peak"`. Who fails to start is left out, with a
        line on standard error.
    """
    early = {name: _Running(commands[name]) for name in ahead}
    running: dict[str, _Running] = {}
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(commands, key=early.__contains__):  # stable: those ahead come last
        process = early.get(name) or _Running(commands[name])
        try:
            found[name] = {"steps": [], **process.answer()}
        except EOFError:
            print(f"{name}: failed, see above", file=sys.stderr, flush=True)
            continue
        running[name] = process
        print(f"{name}: ready after {found[name]['first']:.0f} s", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    for turn in range(rounds):
        now = time.perf_counter()
        if turn and now + (now - begin) / turn > deadline:
            break
        for name, process in running.items():
            found[name]["steps"].append(process.answer(seconds)["step"])
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    for name, process in running.items():
        found[name].update(process.end())
    return found


def answer(
    prepare: Callable[[], Callable[[int], Any]], peak_memory: Callable[[], int | None]
) -> None:
    """Computes on request: the other side of `race`.

    Args:
        prepare: Returns what computes as many steps; timed until its first step.
        peak_memory: Returns bytes, or None if they are not known; called at the end.
    """
    start = time.perf_counter()
    run = prepare()
    run(1)
    first = time.perf_counter() - start
    run(1)
    print(json.dumps({"first": first}), flush=True)
    for line in sys.stdin:
        begin, steps, spent = time.perf_counter(), 0, 0.0
        while spent < float(line):
            # Doubling, so that a call of `fit` is of several steps, but not far beyond the end.
            left = (float(line) - spent) * steps / spent if steps else 1
            count = max(1, min(steps, math.ceil(left)))
            run(count)
            steps += count
            spent = time.perf_counter() - begin
        print(json.dumps({"step": spent / steps}), flush=True)
    print(json.dumps({"peak": peak_memory()}), flush=True)


def table(
    found: Mapping[str, Mapping[str, Any]],
    batch: int,
    flops: int,
    matrix: int,
    library: Callable[[str], str],
    base: str,
) -> str:
    """Returns the table of a race: rates, ratios and shares, each over the turns of one round.

    Args:
        found: What `race` returned. Those called `"LIBRARY-product"` are large products of
            matrices: the limit of what the library makes of the hardware.
        batch: Images in a step.
        flops: Floating-point operations of an image.
        matrix: Rows and columns of the products' matrices.
        library: Returns the library, by the name of a contestant.
        base: Whom the others are compared to.
    """
    limits = {
        name.removesuffix(PRODUCT): [2 * matrix**3 / s for s in row["steps"]]
        for name, row in found.items()
        if name.endswith(PRODUCT)
    }
    products = (
        f"{spread([v / 1e9 for v in values], 0)} GFLOP/s in {name}"
        for name, values in limits.items()
    )
    limit_line = f"Product of two matrices of {matrix} rows and columns: {', '.join(products)}."
    lines = [
        *((limit_line, "") if limits else ()),
        f"| contestant | images/s | relative to {base} | share of the product's rate "
        "| until the first step s | peak memory MB |",
        "|---|---|---|---|---|---|",
    ]
    rates = {
        name: [batch / s for s in row["steps"]]
        for name, row in found.items()
        if not name.endswith(PRODUCT)
    }
    for name, values in rates.items():
        other, limit, peak = rates.get(base), limits.get(library(name)), found[name]["peak"]
        ratios = [a / b for a, b in zip(values, other, strict=True)] if other else []
        share = [v * flops / m for v, m in zip(values, limit, strict=True)] if limit else []
        lines.append(
            f"| {name} | {spread(values, 1)} "
            f"| {spread(ratios, 2) if ratios else ''} "
            f"| {f'{statistics.median(share):.0%}' if share else ''} "
            f"| {found[name]['first']:.0f} | {f'{peak / 1e6:.0f}' if peak else ''} |"
        )
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int) -> str:
    """Returns median and range as a table shows them."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def median_interval(ratios: Sequence[float]) -> str:
    """Returns the median of ratios with its 95% interval as text."""
    draws = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return (
        f"**{np.median(ratios):.3f}** ({len(ratios)} pairs; 95% of the median, bootstrap: "
        f"{low:.3f} to {high:.3f})"
    )


class _Running:
    """The process of a contestant."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, seconds: float | None = None) -> dict[str, Any]:
        """Asks for a turn, if seconds are given, and returns the next line of JSON."""
        if seconds is not None:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # a library may print something of its own
                return json.loads(line)
        raise EOFError

    def end(self) -> dict[str, Any]:
        self._process.stdin.close()
        last = self.answer()
        self._process.wait()
        return last
