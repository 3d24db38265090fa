"""Contestants that take turns, each in a process of its own.

Whatever else the machine does falls on all of them, so the figures to trust are ratios within a
round. `race` starts the processes; in each of them `answer` computes on request.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def race(
    commands: Mapping[str, Sequence[str]], rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Lets contestants take turns.

    Args:
        commands: By name, the command that starts a contestant, which calls `answer`.
        rounds: Turns of each.
        seconds: Length of a turn.

    Returns:
        By name the seconds of a step in each turn, `"steps"`; the seconds until the first,
        `"first"`; and the peak memory in bytes, `"peak"`. Who fails to start is left out, with a
        line on standard error.
    """
    running: dict[str, _Running] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, command in commands.items():
        process = _Running(command)
        try:
            found[name] = {"steps": [], **process.answer()}
        except EOFError:
            print(f"{name}: failed, see above", file=sys.stderr, flush=True)
            continue
        running[name] = process
        print(f"{name}: ready after {found[name]['first']:.0f} s", file=sys.stderr, flush=True)
    for _ in range(rounds):
        for name, process in running.items():
            found[name]["steps"].append(process.answer(seconds)["step"])
    for name, process in running.items():
        found[name].update(process.end())
    return found


def answer(prepare: Callable[[], Callable[[int], Any]]) -> None:
    """Computes on request: the other side of `race`.

    Args:
        prepare: Returns what computes as many steps; timed until its first step.
    """
    start = time.perf_counter()
    run = prepare()
    run(1)
    first = time.perf_counter() - start
    run(1)
    print(json.dumps({"first": first}), flush=True)
    for line in sys.stdin:
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < float(line):
            count = max(1, steps)  # doubling, so that a call of `fit` is of several steps
            run(count)
            steps += count
        print(json.dumps({"step": (time.perf_counter() - begin) / steps}), flush=True)
    from keras_vit.reports import cost

    print(json.dumps({"peak": cost.peak_memory()}), flush=True)


def spread(values: Sequence[float], digits: int) -> str:
    """Returns median and range as a table shows them."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


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
