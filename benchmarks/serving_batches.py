"""Rates of exported bundles where requests are computed in batches, as TensorFlow Serving does.

Requests of one image file each, from several clients at a time, go to SavedModels in TensorFlow's
C API, without XLA. Requests that wait are computed together, as `batching.config` says: by as many
threads as it names, when the batch is full or its first request has waited long enough.

`compare` lets bundles take turns, each with the `batching.config` beside its models; the first one
is the base of the ratios. With --openvino a model of OpenVINO besides, which gets the same files,
read by the same function. `sweep` tries values of `batching.config` for one bundle.

    python benchmarks/serving_batches.py compare old/vit/1 new/vit/1 --data photos/
    python benchmarks/serving_batches.py sweep serving/vit/1 --data photos/
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from serving_load import requests
from session import Session, signatures_of
from turns import spread

IMAGES = 64


@dataclasses.dataclass(frozen=True)
class Batching:
    """Values of `batching.config`, by default those of versions that did not write it."""

    max_batch_size: int = 32
    batch_timeout_micros: int = 2000
    num_batch_threads: int = 2

    @classmethod
    def of(cls, path: Path) -> Batching:
        """Returns the values of a file, or the defaults if there is none."""
        text = path.read_text() if path.is_file() else ""
        found = re.findall(r"^(\w+) *\{ *value: *(\d+) *\}", text, re.MULTILINE)
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: int(value) for name, value in found if name in names})


class Batcher:
    """Computes requests of several threads together.

    Args:
        compute: From images to a result for each.
        batching: How many at a time.
    """

    def __init__(self, compute: Callable[[list[bytes]], Sequence[Any]], batching: Batching) -> None:
        self._compute, self._batching = compute, batching
        self._changed = threading.Condition()
        self._waiting: collections.deque[tuple[float, bytes, list[Any], threading.Event]] = (
            collections.deque()
        )
        self._ended = False
        self._threads = [
            threading.Thread(target=self._work) for _ in range(batching.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def __call__(self, image: bytes) -> Any:
        result: list[Any] = []
        done = threading.Event()
        with self._changed:
            self._waiting.append((time.perf_counter(), image, result, done))
            self._changed.notify()
        done.wait()
        return result[0]

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next():
            found = self._compute([image for _, image, _, _ in batch])
            for (_, _, result, done), value in zip(batch, found, strict=True):
                result.append(value)
                done.set()

    def _next(self) -> list[Any]:
        most, patience = self._batching.max_batch_size, self._batching.batch_timeout_micros / 1e6
        with self._changed:
            while not self._ended:
                if self._waiting:
                    left = self._waiting[0][0] + patience - time.perf_counter()
                    if left <= 0 or len(self._waiting) >= most:
                        number = min(most, len(self._waiting))
                        return [self._waiting.popleft() for _ in range(number)]
                    self._changed.wait(left)
                else:
                    self._changed.wait()
        return []


def load(
    send: Callable[[bytes], object], images: Sequence[bytes], clients: int, seconds: float
) -> dict[str, float]:
    """Returns images/s of several clients and percentiles of the milliseconds."""
    rate, times = requests(send, images, clients, seconds)
    p50, p99 = np.percentile(times, [50, 99])
    return {"rate": rate, "p50": p50, "p99": p99}


class Served:
    """A process that answers: a SavedModel in the C API, or a model of OpenVINO.

    Args:
        path: A version folder of a bundle, or the `.xml` file of another.
        work: Folder with the images, as `prepare` writes it.
        threads: Threads of an operator, see `Session`.
    """

    def __init__(self, path: Path, work: Path, threads: int = 0) -> None:
        if path.suffix != ".xml":
            _names(path, work).write_text(json.dumps(signatures_of(path)))
        self._process: Any = subprocess.Popen(
            [sys.executable, __file__, "--child", str(path), str(work), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def load(self, batching: Batching, clients: int, seconds: float) -> dict[str, float]:
        request = {**dataclasses.asdict(batching), "clients": clients, "seconds": seconds}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise EOFError

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def child(path: Path, work: Path, threads: int) -> None:
    """Answers in a process without TensorFlow's Python, or of OpenVINO."""
    images = [(work / str(index)).read_bytes() for index in range(len(list(work.glob("[0-9]*"))))]
    compute = _openvino(path) if path.suffix == ".xml" else _saved_model(path, work, threads)
    for number in (1, 4, 16, 32, len(images)):  # what is made for a shape is made now
        compute(images[:number])
    for line in sys.stdin:
        request = json.loads(line)
        clients, seconds = request.pop("clients"), request.pop("seconds")
        batcher = Batcher(compute, Batching(**request))
        print(json.dumps(load(batcher, images, clients, seconds)), flush=True)
        batcher.end()


def _names(path: Path, work: Path) -> Path:
    """Returns the file with the names of a SavedModel's tensors."""
    return work / f"names{str(path.resolve()).replace('/', '-')}.json"


def _saved_model(path: Path, work: Path, threads: int) -> Callable[[list[bytes]], Sequence[Any]]:
    session = Session(path, json.loads(_names(path, work).read_text()), threads=threads)
    return lambda images: session.call("serving_default", image_bytes=images)["probabilities"]


def _openvino(path: Path) -> Callable[[list[bytes]], Sequence[Any]]:
    import openvino
    import tensorflow as tf

    from keras_vit import preprocessing_files
    from keras_vit.data.image_reading import Limits, read_each

    folder = path.parent
    preprocessing = preprocessing_files.parse(
        json.dumps(json.loads((folder / "manifest.json").read_text())["preprocessing"]).encode(),
        str(folder),
    )
    hints = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": os.cpu_count()}
    model = openvino.Core().compile_model(str(path), "CPU", hints)
    local = threading.local()

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)], autograph=False)
    def read(encoded: tf.Tensor) -> tf.Tensor:
        return read_each(encoded, preprocessing, Limits()).pixels

    def compute(images: list[bytes]) -> Sequence[Any]:
        if not hasattr(local, "request"):
            local.request = model.create_infer_request()
        return local.request.infer(read(tf.constant(images)).numpy())[0].copy()

    return compute


def prepare(data: str, work: Path) -> float:
    """Writes images that are sent; returns their mean size in kB."""
    from keras_vit import data as sources

    examples = sources.load(data)
    chosen = np.random.default_rng(0).permutation(len(examples))[:IMAGES]
    images = [examples.read(int(index)) for index in chosen]
    for index, image in enumerate(images):
        (work / str(index)).write_bytes(image)
    return sum(map(len, images)) / len(images) / 1000


def compare(arguments: argparse.Namespace, work: Path) -> str:
    """Returns the table of a race between bundles."""
    paths = [*arguments.bundles, *([arguments.openvino] if arguments.openvino else [])]
    threads = arguments.threads_of_operators + [0] * len(paths)
    names = [
        f"{path}, threads: {n}" if n else str(path) for path, n in zip(paths, threads, strict=False)
    ]
    batchings = [
        Batching.of(arguments.batching or path.parents[1] / "batching.config") for path in paths
    ]
    served = [Served(path, work, n) for path, n in zip(paths, threads, strict=False)]
    lines = [f"- {name}: {batching}" for name, batching in zip(names, batchings, strict=True)]
    lines += ["", "| | clients | images/s | p50 ms | p99 ms | relative to the first |"]
    lines += ["|---" * 6 + "|"]
    for clients in arguments.clients:
        rounds: list[list[dict[str, float]]] = []
        for _ in range(arguments.rounds):
            rounds.append(
                [
                    each.load(batching, clients, arguments.seconds)
                    for each, batching in zip(served, batchings, strict=True)
                ]
            )
        for index, name in enumerate(names):
            found = [turn[index] for turn in rounds]
            ratios = [turn[index]["rate"] / turn[0]["rate"] for turn in rounds]
            lines.append(
                f"| {name} | {clients} | {spread([f['rate'] for f in found], 1)} | "
                f"{statistics.median(f['p50'] for f in found):.0f} | "
                f"{statistics.median(f['p99'] for f in found):.0f} | {spread(ratios, 2)} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    for each in served:
        each.end()
    return "\n".join(lines)


def sweep(arguments: argparse.Namespace, work: Path) -> str:
    """Returns the table of rates by the values of `batching.config`, and draws it.

    The values are compared by the geometric mean over the numbers of clients.
    """
    served = Served(arguments.bundles[0], work, *arguments.threads_of_operators[:1])
    settings = [
        Batching(*values)
        for values in itertools.product(arguments.sizes, arguments.timeouts, arguments.threads)
        if values[0] > 1 or values[1] == 0  # a batch of one is full at once
    ]
    found: dict[Batching, dict[int, list[dict[str, float]]]] = {
        each: {clients: [] for clients in arguments.clients} for each in settings
    }
    for turn in range(arguments.rounds):
        for batching, clients in itertools.product(settings, arguments.clients):
            found[batching][clients].append(served.load(batching, clients, arguments.seconds))
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    served.end()
    lines = [
        "| batch size | timeout µs | threads | "
        + " | ".join(f"images/s, {n} clients | p99 ms" for n in arguments.clients)
        + " | geometric mean |",
        "|---" * (4 + 2 * len(arguments.clients)) + "|",
    ]
    rows = {
        batching: {
            clients: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
            for clients, turns in by_clients.items()
        }
        for batching, by_clients in found.items()
    }
    means = {
        batching: statistics.geometric_mean(cell["rate"] for cell in row.values())
        for batching, row in rows.items()
    }
    for batching in sorted(rows, key=means.__getitem__, reverse=True):
        row = rows[batching]
        cells = [f"{row[n]['rate']:.1f} | {row[n]['p99']:.0f}" for n in arguments.clients]
        lines.append(
            f"| {batching.max_batch_size} | {batching.batch_timeout_micros} | "
            f"{batching.num_batch_threads} | {' | '.join(cells)} | {means[batching]:.1f} |"
        )
    if arguments.plot:
        written = Batching.of(arguments.bundles[0].parents[1] / "batching.config")
        _draw(rows, written, arguments.clients, arguments.plot)
    return "\n".join(lines)


def _draw(
    rows: dict[Batching, dict[int, dict[str, float]]],
    written: Batching,
    clients: Sequence[int],
    path: Path,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(clients), figsize=(4 * len(clients), 4))
    sizes = sorted({batching.max_batch_size for batching in rows})
    colors = dict(zip(sizes, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(sizes))), strict=True))
    threads = sorted({batching.num_batch_threads for batching in rows})
    for axis, number in zip(np.atleast_1d(axes), clients, strict=True):
        for count, marker in zip(threads, itertools.cycle("os^v")):
            points = {b: r[number] for b, r in rows.items() if b.num_batch_threads == count}
            axis.scatter(
                [point["p99"] for point in points.values()],
                [point["rate"] for point in points.values()],
                c=[colors[b.max_batch_size] for b in points],
                marker=marker,
                label=f"{count} thread{'s' * (count > 1)}",
            )
        if written in rows:
            point = rows[written][number]
            axis.scatter(
                *(point["p99"], point["rate"], 200, "none"),
                edgecolors="red",
                label="batching.config of the bundle",
            )
        axis.set(title=f"{number} client{'s' * (number > 1)}", xlabel="99th percentile (ms)")
    np.atleast_1d(axes)[0].set_ylabel("images/s")
    np.atleast_1d(axes)[-1].legend()
    named = ", ".join(map(str, sizes))
    figure.suptitle(f"Throughput against latency; dark to light: batches of at most {named} images")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=("compare", "sweep"))
    parser.add_argument("bundles", nargs="+", type=Path, help="version folders of bundles")
    parser.add_argument("--data", required=True, help="labeled images to send")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=9, help="turns of each")
    parser.add_argument("--seconds", type=float, default=3, help="length of a turn")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 8, 16, 32, 64])
    parser.add_argument("--timeouts", nargs="+", type=int, default=[0, 2000, 10000])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4])
    threads = "--tensorflow_intra_op_parallelism of each bundle; 0: one per core (default)"
    parser.add_argument("--threads-of-operators", nargs="+", type=int, default=[], help=threads)
    parser.add_argument("--batching", type=Path, help="batching.config of all bundles")
    parser.add_argument("--openvino", type=Path, help="model.xml to compare with")
    parser.add_argument("--plot", type=Path, help="PNG file to draw a sweep to")
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    if len(arguments.threads_of_operators) > len(arguments.bundles):
        parser.error("--threads-of-operators has more values than there are bundles")
    from train_step import hardware

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        kilobytes = prepare(arguments.data, work)
        table = {"compare": compare, "sweep": sweep}[arguments.task](arguments, work)
    import tensorflow as tf

    text = (
        f"# Requests in batches\n\n{hardware()}; Python {platform.python_version()}, TensorFlow "
        f"{tf.__version__}; JPEGs of {kilobytes:.0f} kB; {arguments.rounds} rounds of "
        f"{arguments.seconds:g} s, medians with their range\n\n{table}\n"
    )
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
