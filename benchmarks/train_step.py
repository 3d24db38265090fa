"""Which precision and compiler train fastest on this machine?

Times one training step (forward, backward, AdamW update, as `model.fit` runs it) in float32,
with and without XLA, and in mixed_bfloat16. The variants take turns, so that whatever else the
machine does falls on all of them; the figures to trust are the ratios to float32 without XLA.
`keras_vit.training.precision` and `jit_compile` in `keras_vit.training.train` rest on them.

    python benchmarks/train_step.py [--model ViTTi16] [--image-size 224] [--batch-size 16]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from turns import spread

from keras_vit import zoo

VARIANTS = [("float32", False), ("float32", True), ("mixed_bfloat16", False)]
STEPS = 3  # per turn


def compiled(name: str, image_size: int, precision: str, jit_compile: bool) -> keras.Model:
    model = zoo.constructor(name)(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classifier_activation=None,
        dtype=precision,
    )
    model.compile(
        keras.optimizers.AdamW(1e-4, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    return model


def measure(
    name: str, image_size: int, batch_size: int, rounds: int
) -> dict[tuple[str, bool], list[float]]:
    """Returns seconds per step of every turn, by variant."""
    rng = np.random.default_rng(0)
    images = tf.constant(rng.normal(size=(batch_size, image_size, image_size, 3)), tf.float32)
    labels = tf.constant(rng.integers(0, 1000, batch_size))
    models = {variant: compiled(name, image_size, *variant) for variant in VARIANTS}
    for variant, model in models.items():
        start = time.perf_counter()
        model.train_on_batch(images, labels)
        print(
            f"{variant}: first step, with tracing {time.perf_counter() - start:.0f} s", flush=True
        )
    seconds: dict[tuple[str, bool], list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant, model in models.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                model.train_on_batch(images, labels)
            seconds[variant].append((time.perf_counter() - start) / STEPS)
    return seconds


def table(seconds: dict[tuple[str, bool], list[float]], batch_size: int) -> str:
    lines = [
        "| precision | XLA | images/s, median | time relative to float32, median (range) |",
        "|---|---|---|---|",
    ]
    base = seconds[VARIANTS[0]]
    for (precision, jit_compile), times in seconds.items():
        ratios = [a / b for a, b in zip(times, base, strict=True)]
        lines.append(
            f"| {precision} | {'yes' if jit_compile else 'no'} "
            f"| {batch_size / statistics.median(times):.1f} "
            f"| {spread(ratios, 2)} |"
        )
    return "\n".join(lines)


def hardware() -> str:
    flags = Path("/proc/cpuinfo")
    text = flags.read_text(encoding="utf-8") if flags.exists() else ""
    features = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in text]
    return f"{os.cpu_count()} cores, {platform.machine()}, {', '.join(features) or 'no features'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="ViTTi16", help="name of a constructor")
    parser.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--batch-size", type=int, default=16, help="images in a step")
    parser.add_argument("--rounds", type=int, default=5, help=f"turns of {STEPS} steps each")
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    name, size, batch_size = arguments.model, arguments.image_size, arguments.batch_size
    seconds = measure(name, size, batch_size, arguments.rounds)
    text = (
        f"# Training step of {name} at {size} pixels, batch {batch_size}\n\n"
        f"{hardware()}; Python {platform.python_version()}, TensorFlow {tf.__version__}, "
        f"Keras {keras.__version__}; {arguments.rounds} turns of {STEPS} steps a variant.\n\n"
        f"{table(seconds, batch_size)}\n"
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
