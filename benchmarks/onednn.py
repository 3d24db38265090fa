"""Rates with and without oneDNN on a processor that has AVX2 but no AVX-512, or is limited to it.

Each variant runs in a separate process, and the processes take turns; a ratio is that of two
turns of one round. "Before" is TF_ENABLE_ONEDNN_OPTS=0, TensorFlow's default on such a processor.

    python benchmarks/onednn.py [--sizes Ti B] [--out TABLE.md]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turns
from train_step import hardware

LIMIT = {"ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}
SETTINGS = {"before": "0", "onednn": "1"}


def pixels(batch: int) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(0, 256, (batch, 224, 224, 3), np.uint8)


def model_of(size: str) -> Any:
    import keras_vit

    return getattr(keras_vit, f"ViT{size}16")(weights=None)


def training(size: str, batch: int) -> Callable[[int], Any]:
    import keras
    import tensorflow as tf

    import keras_vit
    from keras_vit.data.pipeline import read_ahead

    model = model_of(size)
    model.compile(keras_vit.AdamW(1e-4), keras.losses.SparseCategoricalCrossentropy())
    data = keras_vit.preprocess_input(pixels(batch)), tf.zeros([batch], tf.int32)
    batches = read_ahead(tf.data.Dataset.from_tensors(data).repeat())
    return lambda steps: model.fit(batches, steps_per_epoch=steps, verbose=0)


def loaded(size: str, batch: int) -> Callable[[int], Any]:
    import keras_vit

    images = list(pixels(batch))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model_of(size).save(path)
        predictor = keras_vit.load_predictor(path)
    return lambda steps: [predictor.predict(images) for _ in range(steps)]


def bundle(size: str, batch: int) -> Callable[[int], Any]:
    import tensorflow as tf

    from keras_vit.export import saved_model

    with tempfile.TemporaryDirectory() as folder:
        loaded = tf.saved_model.load(str(saved_model.write(model_of(size), Path(folder, "1"))))
    signature, images = loaded.signatures["classify_pixels"], tf.constant(pixels(batch))
    return lambda steps: (
        [signature(pixels=images)["probabilities"].numpy() for _ in range(steps)] + [loaded]
    )


def optimized(size: str, batch: int) -> Callable[[int], Any]:
    import keras_vit

    model = keras_vit.optimize_for_inference(model_of(size))
    images = keras_vit.preprocess_input(pixels(batch))
    return lambda steps: [model(images) for _ in range(steps)][-1].numpy()


def compiled(size: str, batch: int) -> Callable[[int], Any]:
    import tensorflow as tf

    import keras_vit

    model = model_of(size)
    forward = tf.function(lambda x: model(x, training=False), jit_compile=True)
    images = tf.constant(keras_vit.preprocess_input(pixels(batch)))
    return lambda steps: [forward(images) for _ in range(steps)][-1].numpy()


TASKS: dict[str, Callable[[str, int], Callable[[int], Any]]] = {
    "optimize_for_inference": optimized,
    "load_predictor": loaded,
    "bundle": bundle,
    "training": training,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["Ti", "B"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--native", action="store_true", help="use all instruction sets")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        task, size, batch = options.contestant
        prepare = {**TASKS, "xla": compiled}[task]
        turns.answer(lambda: prepare(size, int(batch)), lambda: None)
        return
    rows = [
        "| model | images | | before, images/s | with oneDNN | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for size in options.sizes:
        for batch in options.batches:
            for task in options.tasks:
                found = compare(task, size, batch, options)
                rows.append(row(size, batch, task, found))
                print(rows[-1], flush=True)
    limited = "all instruction sets" if options.native else "limited to AVX2"
    text = f"{hardware()}; {limited}; {options.rounds} rounds. By `onednn.py`.\n\n"
    text += "\n".join(rows) + "\n"
    print(text)
    if options.out:
        options.out.write_text(f"# oneDNN without AVX-512\n\n{text}", encoding="utf-8")


def compare(task: str, size: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    limit = [] if options.native else [f"{name}={value}" for name, value in LIMIT.items()]
    script = [sys.executable, __file__, "--contestant"]
    names = {name: (task, value) for name, value in SETTINGS.items()}
    if task == "optimize_for_inference":
        names["xla"] = ("xla", "1")
    commands = {
        name: ["env", *limit, f"TF_ENABLE_ONEDNN_OPTS={value}", *script, what, size, str(batch)]
        for name, (what, value) in names.items()
    }
    return turns.race(commands, options.rounds, options.seconds)


def row(size: str, batch: int, task: str, found: dict[str, Any]) -> str:
    rates = {name: [batch / s for s in values["steps"]] for name, values in found.items()}
    ratios = [a / b for a, b in zip(rates["onednn"], rates["before"], strict=True)]
    if "xla" in rates:
        pairs = zip(rates["onednn"], rates["xla"], strict=True)
        task += f" ({statistics.median(a / b for a, b in pairs):.2f} of XLA's rate)"
    spreads = [turns.spread(rates[name], 1) for name in SETTINGS]
    return f"| {size}/16 | {batch} | {task} | {' | '.join(spreads)} | {turns.spread(ratios, 2)} |"


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    main()
