"""Rate of `keras-vit predict --to` against the bare model on images in memory.

Rates are images per second after the first answers, without loading the model. Both take turns; a
ratio is computed for each round, and its median. With `--ray`, the rate of `--engine ray` against
the command. With `--memory`, peak memory of the command for that many images and for a tenth.

    python benchmarks/bulk_prediction.py photos/ [--model ViTTi16] [--images 1024]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from train_step import hardware
from turns import median_interval

import keras_vit
from keras_vit.cli import prediction_table
from keras_vit.export import load_predictor, ray_engine

BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of images")
    parser.add_argument("--model", default="ViTTi16", help="constructor")
    parser.add_argument("--images", type=int, default=1024, help="images of a measurement")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ray", action="store_true", help="measure the engine Ray")
    parser.add_argument("--memory", action="store_true", help="measure memory, not rates")
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    arguments = parser.parse_args()
    photos = sorted(map(str, arguments.data.rglob("*.jpg")))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        getattr(keras_vit, arguments.model)(weights=None, classes=5).save(path)
        measure = memory if arguments.memory else ray_rates if arguments.ray else rates
        lines = measure(path, photos, arguments)
    text = "\n".join(
        [
            f"# Bulk prediction\n\n{hardware()}; Python {platform.python_version()}, Keras "
            f"{keras.__version__}; {arguments.model}, photographs of {arguments.data.name}, batch "
            f"size {BATCH}\n",
            *lines,
        ]
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


def rates(path: Path, photos: list[str], arguments: argparse.Namespace) -> list[str]:
    """Returns a line for each ratio."""
    predictor = load_predictor(path)
    names = list(itertools.islice(itertools.cycle(photos), arguments.images))
    table = predictor.task.table(predictor.preprocessing)
    read, run = predictor._read, predictor._run
    batch = read([Path(name).read_bytes() for name in names[:BATCH]])

    def bare() -> Iterator[Any]:
        while True:
            outputs, _ = run(batch)
            yield from outputs

    def command() -> Iterator[Any]:
        return predictor.iterate(names, BATCH)

    contestants: dict[str, Callable[[], Iterator[Any]]] = {"command": command, "bare model": bare}
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-1, arguments.rounds):
        for name, answers in contestants.items():
            rate = images_per_second(answers(), names, table if name == "command" else None)
            if turn >= 0:
                found[name].append(rate)
                print(f"round {turn + 1}: {name} {rate:.1f} images/s", file=sys.stderr, flush=True)
    ratios = np.divide(found["command"], found["bare model"])
    return [f"Rate of the command / of the bare model: {median_interval(ratios)}."]


def ray_rates(path: Path, photos: list[str], arguments: argparse.Namespace) -> list[str]:
    """Returns a line for the ratio of the rates of Ray's actors and of the command."""
    predictor = load_predictor(path)
    names = list(itertools.islice(itertools.cycle(photos), arguments.images))
    table = predictor.task.table(predictor.preprocessing)
    ray_engine.connect()
    found = []
    for turn in range(-1, arguments.rounds):
        log = path.with_name(f"{turn}.txt")
        source = functools.partial(timed_model, str(path), str(log))
        for _ in ray_engine.predict(names, source=source, batch_size=BATCH):
            pass
        pair = actors_rate(log), images_per_second(predictor.iterate(names, BATCH), names, table)
        if turn >= 0:
            found.append(pair)
            print(f"round {turn + 1}: Ray {pair[0]:.1f}, command {pair[1]:.1f}", file=sys.stderr)
    ratios = np.divide(*np.transpose(found))
    return [f"Rate of Ray's actors / of the command: {median_interval(ratios)}."]


def timed_model(path: str, log: str) -> keras.Model:
    """Returns a model in an actor, which then writes the time after each of its tasks to a file."""
    task = ray_engine._ListPredictor.__call__

    def timed(self: Any, batch: Any) -> Any:
        predictions = task(self, batch)
        with open(log, "a") as file:
            file.write(f"{os.getpid()} {time.time()} {sum(map(len, batch['images']))}\n")
        return predictions

    ray_engine._ListPredictor.__call__ = timed
    return keras.saving.load_model(path)


def actors_rate(log: Path) -> float:
    """Returns the sum of the actors' rates, each after its first task."""
    tasks: dict[str, list[tuple[float, int]]] = {}
    for line in log.read_text().splitlines():
        actor, seconds, images = line.split()
        tasks.setdefault(actor, []).append((float(seconds), int(images)))
    return sum(
        sum(images for _, images in done[1:]) / (done[-1][0] - done[0][0])
        for done in tasks.values()
    )


def images_per_second(answers: Iterator[Any], names: list[str], table: Any) -> float:
    """Returns the rate of answers, written to a table if there is one, after the first batch."""
    times = []

    def rows_from(start: int) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        for name, answer in zip(names, answers, strict=False):
            times.append(time.perf_counter())
            yield table.rows(name, answer) if table else [], True

    if table:
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder) / "answers.parquet"
            prediction_table.write_table(to, table.columns, len(names), rows_from)
    else:
        list(rows_from(0))
    return (len(names) - BATCH) / (time.perf_counter() - times[BATCH - 1])


def memory(path: Path, photos: list[str], arguments: argparse.Namespace) -> list[str]:
    """Returns a line for the peak memory of each number of images, which are links."""
    lines = []
    for number in (arguments.images // 10, arguments.images):
        with tempfile.TemporaryDirectory() as folder:
            images = Path(folder) / "images"
            images.mkdir()
            for index, photo in enumerate(itertools.islice(itertools.cycle(photos), number)):
                (images / f"{index:07d}.jpg").symlink_to(photo)
            to = Path(folder) / "answers.parquet"
            command = [sys.executable, "-m", "keras_vit", "predict", str(path), str(images)]
            process = subprocess.Popen([*command, "--to", str(to)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                raise RuntimeError(f"The command failed with status {status}")
            lines.append(f"{number} images: peak memory {usage.ru_maxrss / 1024:,.0f} MiB.")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    main()
