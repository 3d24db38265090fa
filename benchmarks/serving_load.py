"""How many images a served model answers, how long each waits, and what the time goes to.

Requests of one image file each, from 1, 4 and 16 clients at a time:

- to the exported SavedModel in TensorFlow's C API, which TensorFlow Serving runs it in, without
  the server's network and batching; with --server to a real one as well, over gRPC or REST;
- as a peer, to the Keras model behind PIL (whole image, bicubic) and `predict_on_batch`, as in a
  web server of one's own.

Also: the first request after loading beside later ones, with the warm-up requests of the bundle
answered before and without.

    python benchmarks/serving_load.py RUN serving/vit/1 --data photos/ [--seconds 8]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
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
from session import Session, signatures_of
from turns import spread

CLIENTS = (1, 4, 16)
IMAGES = 64
LATER = 30  # requests after the first
ROUNDS = 3  # in which what is compared takes turns
PARTS = 40  # requests that each part is timed on


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="run folder that was exported")
    parser.add_argument("saved_model", type=Path, help="version folder of its bundle")
    parser.add_argument("--data", required=True, help="labeled images to send")
    parser.add_argument("--server", help="HOST:PORT or http://HOST:PORT of TensorFlow Serving")
    parser.add_argument("--name", default="vit", help="what the model is called there")
    parser.add_argument(
        "--seconds", type=float, default=8, help="for each number of clients, in each round"
    )
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    arguments = parser.parse_args()
    import keras
    import tensorflow as tf
    from train_step import hardware

    from keras_vit import data
    from keras_vit.export import Client

    examples = data.load(arguments.data)
    chosen = np.random.default_rng(0).permutation(len(examples))[:IMAGES]
    images = [examples.read(int(index)) for index in chosen]
    kilobytes = sum(map(len, images)) / len(images) / 1000
    lines = [
        f"# Serving {arguments.run.name}\n\n{hardware()}; Python {platform.python_version()}, "
        f"Keras {keras.__version__}, TensorFlow {tf.__version__}; "
        f"{len(images)} images of {kilobytes:.0f} kB; "
        f"{ROUNDS} rounds of {arguments.seconds:.0f} s, medians with their range\n"
    ]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = Path(folder)
        _prepare(work, arguments.saved_model, images)
        peer = _keras(arguments.run)
        turns: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "SavedModel, C API": lambda: _child(work, "load", arguments.seconds),
            "Keras and PIL": lambda: load(peer, images, arguments.seconds),
        }
        if arguments.server:
            client = stack.enter_context(Client(arguments.server, arguments.name))
            turns["TensorFlow Serving"] = lambda: load(
                lambda image: client.predict([image]), images, arguments.seconds
            )
        rounds = [{name: turn() for name, turn in turns.items()} for _ in range(ROUNDS)]
        lines += _table(rounds)
        parts = _child(work, "parts")
        whole = parts["whole"]
        lines.append("\n| part of one request | ms | share |\n|---|---|---|")
        for name in ("decode", "check and resize", "model", "rest"):
            lines.append(f"| {name} | {parts[name]:.2f} | {parts[name] / whole:.0%} |")
        lines.append("\n| | first request ms | later, median ms | ratio |\n|---|---|---|---|")
        for name, how in (("warmed up", "warm"), ("not warmed up", "cold")):
            first, later = _child(work, how)
            lines.append(f"| {name} | {first:.1f} | {later:.1f} | {first / later:.1f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


def _table(rounds: Sequence[dict[str, list[dict[str, Any]]]]) -> list[str]:
    lines = ["| | clients | images/s | p50 ms | p99 ms | ratio |", "|---|---|---|---|---|---|"]
    for name, (row, clients) in itertools.product(rounds[0], enumerate(CLIENTS)):
        mine = [turns[name][row] for turns in rounds]
        ratios = [
            m["rate"] / t["Keras and PIL"][row]["rate"] for m, t in zip(mine, rounds, strict=True)
        ]
        p50, p99 = np.percentile([ms for turn in mine for ms in turn["times"]], [50, 99])
        lines.append(
            f"| {name} | {clients} | {spread([m['rate'] for m in mine], 1)} | {p50:.0f} | "
            f"{p99:.0f} | {spread(ratios, 2)} |"
        )
    return lines


def load(
    send: Callable[[bytes], object], images: Sequence[bytes], seconds: float
) -> list[dict[str, Any]]:
    """Returns rate and milliseconds for each number of clients."""
    send(images[0])
    found = [requests(send, images, clients, seconds) for clients in CLIENTS]
    return [{"rate": rate, "times": times} for rate, times in found]


def requests(
    send: Callable[[bytes], object], images: Sequence[bytes], clients: int, seconds: float
) -> tuple[float, list[float]]:
    """Sends from several threads; returns images/s and the milliseconds of each request."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def client(offset: int) -> None:
        for image in itertools.islice(itertools.cycle(images), offset, None):
            start = time.perf_counter()
            if start > end:
                return
            send(image)
            times.append((time.perf_counter() - start) * 1000)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times) / (time.perf_counter() - start), times


def _keras(run: Path) -> Callable[[bytes], object]:
    import io

    import keras
    from PIL import Image

    from keras_vit import models

    network, preprocessing = models.last_activation.with_probabilities(
        keras.saving.load_model(run / "last.keras", compile=False)
    )
    height, width = preprocessing.size

    def send(encoded: bytes) -> object:
        with Image.open(io.BytesIO(encoded)) as image:
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
        return network.predict_on_batch(preprocessing.scale(np.asarray(resized)[np.newaxis]))

    return send


def _prepare(work: Path, saved_model: Path, images: Sequence[bytes]) -> None:
    """Writes what the processes without TensorFlow's Python read."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    from keras_vit import preprocessing_files
    from keras_vit.data.decode_and_resize import decode
    from keras_vit.export import warmup

    preprocessing = preprocessing_files.parse(
        (saved_model / "assets" / preprocessing_files.PREPROCESSING).read_bytes(), str(saved_model)
    )
    module = tf.Module()
    module.decode = tf.function(
        lambda image_bytes: {"pixels": decode(image_bytes[0], preprocessing)},
        input_signature=[tf.TensorSpec((None,), tf.string, "image_bytes")],
    )
    tf.saved_model.save(module, str(work / "decode"), signatures={"decode": module.decode})
    task: dict[str, object] = {
        "paths": {"model": str(saved_model.resolve()), "decode": str(work / "decode")},
        "signatures": {
            "model": signatures_of(saved_model),
            "decode": signatures_of(work / "decode"),
        },
        "images": len(images),
    }
    (work / "images").mkdir()
    for index, image in enumerate(images):
        (work / "images" / str(index)).write_bytes(image)
    (work / "warmup").mkdir()
    file = saved_model / "assets.extra" / warmup.FILE
    if not file.is_file():
        raise SystemExit(f"{saved_model} has no warm-up requests: export it with --warm-up")
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    requests = [PredictionLog.FromString(record).predict_log.request for record in records]
    warm = []
    for number, request in enumerate(requests):
        ((key, tensor),) = request.inputs.items()
        array = tf.make_ndarray(tensor)
        text = array.dtype == object
        for index, item in enumerate(array if text else [array]):
            path = work / "warmup" / f"{number}-{index}"
            path.write_bytes(item if text else np.ascontiguousarray(item).tobytes())
        warm.append(
            {
                "signature": request.model_spec.signature_name,
                "key": key,
                "dtype": "bytes" if text else array.dtype.name,
                "shape": list(array.shape),
            }
        )
    (work / "task.json").write_text(json.dumps({**task, "warmup": warm}))


def _child(work: Path, what: str, seconds: float = 0) -> Any:
    result = subprocess.run(
        [sys.executable, __file__, "--child", work, what, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def child(work: Path, what: str, seconds: float) -> object:
    """What runs in a process of its own, without TensorFlow's Python."""
    task = json.loads((work / "task.json").read_text())
    session = Session(task["paths"]["model"], task["signatures"]["model"])
    images = [(work / "images" / str(index)).read_bytes() for index in range(task["images"])]

    def send(image: bytes) -> object:
        return session.call("serving_default", image_bytes=[image])

    if what == "load":
        return load(send, images, seconds)
    if what == "parts":
        return _parts(task, session, send, images)
    if what == "warm":
        for number, request in enumerate(task["warmup"]):
            count = request["shape"][0] if request["dtype"] == "bytes" else 1
            read = [(work / "warmup" / f"{number}-{i}").read_bytes() for i in range(count)]
            value = read
            if request["dtype"] != "bytes":
                value = np.frombuffer(read[0], request["dtype"]).reshape(request["shape"])
            session.call(request["signature"], **{request["key"]: value})
    times = [_milliseconds(lambda image=image: send(image)) for image in images[: LATER + 1]]
    return times[0], statistics.median(times[1:])


def _parts(
    task: dict[str, Any], session: Session, send: Callable[[bytes], object], images: list[bytes]
) -> dict[str, float]:
    decoder = Session(task["paths"]["decode"], task["signatures"]["decode"])
    fitted = session.call("preprocess", image_bytes=images[:1])["pixels"]
    calls: dict[str, Callable[[bytes], object]] = {
        "whole": send,
        "read": lambda image: session.call("preprocess", image_bytes=[image]),
        "decode": lambda image: decoder.call("decode", image_bytes=[image]),
        "model": lambda image: session.call("classify_pixels", pixels=fitted),
    }
    for call in calls.values():
        call(images[0])
    # In turns, since the machine's speed changes within seconds.
    times = [
        {name: _milliseconds(lambda: call(image)) for name, call in calls.items()}  # noqa: B023
        for image in images[:PARTS]
    ]
    median = {name: statistics.median(turn[name] for turn in times) for name in calls}
    median["check and resize"] = median["read"] - median["decode"]
    median["rest"] = median["whole"] - median["read"] - median["model"]
    return median


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))))
    else:
        main()
