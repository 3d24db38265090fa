"""Start, memory and resumption of training on as many images as ImageNet has, from packed shards.

Writes shards of small JPEG images, different from each other, in folders for 1,000 classes, and of
a tenth as many. Trains on each for some steps, in a process of its own, and prints the time from
the start of the process to the end of the first step, and the peak memory of the host. Then a run
is ended within the epoch and resumed: the hashes of its batches must be those of a run that was not
interrupted.

    python benchmarks/simulated_imagenet.py FOLDER [--images 1281167] [--steps 40] [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import PIL.Image
from train_step import hardware

CLASSES = 1_000
SHARD_IMAGES = 100_000


def images(start: int, stop: int) -> Iterator[tuple[str, bool, bytes]]:
    """Yields names and JPEG files, the same for the same index."""
    for index in range(start, stop):
        if index == start or index % 1_000 == 0:
            generator = np.random.default_rng(index // 1_000)
            cells = generator.integers(0, 256, (1_000, 4, 4, 3), np.uint8)
        image = PIL.Image.fromarray(cells[index % 1_000].repeat(8, axis=0).repeat(8, axis=1))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=85)
        yield f"n{index % CLASSES:08d}/n{index % CLASSES:08d}_{index}.JPEG", True, out.getvalue()


def write_shards(folder: Path, number: int) -> Path:
    """Packs images in a folder, unless they are already there; returns the folder."""
    from keras_vit.storage.packing import pack_parts

    destination = folder / f"images-{number}"
    starts = range(0, number, SHARD_IMAGES)
    parts = [functools.partial(images, i, min(i + SHARD_IMAGES, number)) for i in starts]
    plan = {"source": "simulated", "images": number}
    print(pack_parts(parts, destination, plan, processes=os.cpu_count() or 1).text())
    return destination


def train(data: Path, out: Path, steps: int, began: float, *, resume: bool) -> None:
    """Trains, ends after some steps, and prints what was measured as JSON."""
    import keras

    from keras_vit.runs.config import RunConfig
    from keras_vit.runs.recipe import Recipe
    from keras_vit.training import fit_run, training_model

    hashes: list[str] = []
    fit = training_model.TrainingModel.fit

    def hashed(model: keras.Model, dataset, **options):
        def observe(image, target):
            import tensorflow as tf

            def record(pixels: np.ndarray) -> np.ndarray:
                hashes.append(hashlib.sha256(pixels.tobytes()).hexdigest())
                return pixels

            seen = tf.numpy_function(record, [image], image.dtype)
            return tf.ensure_shape(seen, image.shape), target

        return fit(model, dataset.map(observe), **options)

    training_model.TrainingModel.fit = hashed
    seconds: list[float] = []

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            seconds.append(time.time() - began)
            if len(seconds) == steps:
                os.kill(os.getpid(), signal.SIGINT)  # the state is saved

    recipe = Recipe(epochs=1, batch_size=64, image_size=(32, 32))
    config = RunConfig(str(data), "ViTMicro4", recipe=recipe)
    with contextlib.suppress(KeyboardInterrupt):
        fit_run(config, out, resume=resume, tensorboard=False, callbacks=[Stop()])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"first_step_s": seconds[0], "peak_mib": peak, "hashes": hashes}
    print(json.dumps(found), flush=True)
    os._exit(0)


def child(data: Path, out: Path, steps: int, *, resume: bool = False) -> dict:
    """Trains in a new process; returns what it measured."""
    command = [sys.executable, __file__, "--train", str(data), "--out", str(out)]
    command += ["--steps", str(steps), "--began", str(time.time())] + ["--resume"] * resume
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="folder for the shards and runs")
    parser.add_argument("--images", type=int, default=1_281_167)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="Markdown file to write the result to")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        given = arguments
        train(given.train, given.out, given.steps, given.began, resume=given.resume)
        sys.exit()
    if not arguments.folder:
        parser.error("FOLDER is missing")
    results, steps = [], arguments.steps
    for number in (-(-arguments.images // 10), arguments.images):
        data = write_shards(arguments.folder, number)
        out, whole = arguments.folder / f"run-{number}", arguments.folder / f"whole-{number}"
        for run in (out, whole):
            shutil.rmtree(run, ignore_errors=True)
        first = child(data, out, steps)
        resumed = child(data, out, steps, resume=True)
        undisturbed = child(data, whole, 2 * steps)["hashes"]
        done = steps + 1  # the step within which the run was ended is finished
        same = undisturbed[done : 2 * steps] == resumed["hashes"][: steps - 1]
        results.append(
            f"| {number:,} | {first['first_step_s']:.1f} s | {resumed['first_step_s']:.1f} s | "
            f"{max(first['peak_mib'], resumed['peak_mib']):,.0f} MiB | {'yes' if same else 'no'} |"
        )
    text = "\n".join(
        (
            "# Training on as many images as ImageNet has\n",
            f"{hardware()}; Python {platform.python_version()}, TensorFlow "
            f"{metadata.version('tensorflow')}; "
            "ViTMicro4, JPEG images of 32 x 32 pixels in packed shards.\n",
            "| images | first step | first step after resuming | peak memory | same batches |",
            "|---|---|---|---|---|",
            *results,
        )
    )
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
