"""How much faster and smaller is attention within windows, for large images?

An encoder with windows of 16 x 16 patches in all but four blocks, and one without, each in a
process of its own, take turns: time of a step, and peak memory of the process, as ratios.

    python benchmarks/windows.py [--size Ti/16] [--turns 9] [--out results.md]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SIDES = {224: 8, 512: 2, 1024: 1}  # of images, and batch sizes
WINDOW = 16


def contestant(size: str, side: int, window: int, task: str) -> None:
    """Computes a step for each line of standard input, and prints its time and the peak memory."""
    import keras
    import numpy as np

    from keras_vit import models

    config = models.size(size).replace(
        **{"image_size": (side, side), "classes": 0, "pooling": "none"},
        **({"window_size": WINDOW} if window else {}),
    )
    model = models.build(config)
    images = np.random.default_rng(0).normal(size=(SIDES[side], side, side, 3)).astype("float32")
    if task == "training":
        model.compile(keras.optimizers.AdamW(1e-5), "mse")
        targets = np.zeros((len(images), *model.output_shape[1:]), "float32")

    def step() -> Any:
        if task == "training":
            return model.train_on_batch(images, targets)
        return model.predict_on_batch(images)

    step()  # traces
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([seconds, peak]), flush=True)


def race(size: str, side: int, task: str, turns: int) -> tuple[list[float], list[float]]:
    """Returns the ratios of times, and the peak memory of both in MiB, with windows first."""
    command = [sys.executable, __file__, "--size", size]
    both = [
        subprocess.Popen(
            [*command, "--contestant", str(side), str(window), task],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
        )
        for window in (1, 0)
    ]
    ratios, peaks = [], [0.0, 0.0]
    for turn in range(turns):
        seconds = [0.0, 0.0]
        for index in (0, 1) if turn % 2 else (1, 0):
            process = both[index]
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            seconds[index], peaks[index] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        ratios.append(seconds[0] / seconds[1])
    for process in both:
        process.communicate()
    return ratios, peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="Ti/16")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        side, window, task = options.contestant
        contestant(options.size, int(side), int(window), task)
        return
    from train_step import hardware
    from turns import spread

    lines = [
        "| image | task | time, median (range) | peak memory, MiB | ratio |",
        "|---|---|---|---|---|",
    ]
    for side in SIDES:
        for task in ("inference", "training"):
            ratios, (windows, plain) = race(options.size, side, task, options.turns)
            lines.append(
                f"| {side} x {side} | {task} | {spread(ratios, 2)} | {windows:.0f} and {plain:.0f} "
                f"| {windows / plain:.2f} |"
            )
            print(lines[-1], flush=True)
    text = (
        f"# Windows of {WINDOW} x {WINDOW} patches: {options.size}\n\n{hardware()}.\n\n"
        f"Four blocks attend among all patches. {options.turns} turns of each, relative to the "
        "encoder without windows; the peak memory is that of the process.\n\n"
    )
    text += "\n".join(lines) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
