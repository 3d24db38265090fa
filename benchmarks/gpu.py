"""How fast is keras_vit on JAX beside timm on PyTorch, on one GPU?

A training step with AdamW and inference in bfloat16, by `model.fit` and `model.predict` with images
from the host's memory ("fit"), and as a compiled step alone on images that are on the card ("jit"),
as timm's are, compiled and with fused attention. Each is a process of its own on the same card, and
they take turns. A large product of matrices takes its turns as well: the share of its rate is the
utilisation, by `keras_vit.models.count_flops`. Needs jax, torch, timm and a C compiler, but no
TensorFlow. No turn begins that would end after `--minutes`, and no model gets ready in the last
part of them; results are written after each. With `--attention`, the fused kernel is compared with
attention whose weights are stored in memory, without timm.

    python benchmarks/gpu.py [--attention] --out benchmarks/results/gpu.md
    python benchmarks/gpu.py --small            # a try on a CPU: Ti/16 at 32 pixels
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# So that several processes fit onto the card.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import contestant
import turns

START = time.perf_counter()
Options = argparse.Namespace
PACKAGES = ("keras", "jax", "torch", "timm")
MODES = ("compile", "eager")
TASKS = ("training", "inference")
NAMES = ("task", "size", "batch", "image_size", "matrix", "precision", "threads")
NOT_RUN = "**A GPU was not run**: a try of the program, whose figures say nothing about one.\n\n"
LIMITS = ("jax", "torch")  # libraries whose product of matrices takes turns
#: What `--small` changes.
SMALL = {"size": ["Ti"], "batch": 2, "image_size": 32, "matrix": 512, "threads": 1}
SMALL |= {"rounds": 2, "seconds": 0.5}


def batch(options: Options) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (options.batch, options.image_size, options.image_size, 3)
    images = rng.standard_normal(shape, "float32")
    return images, rng.integers(0, contestant.CLASSES, options.batch)


def keras_vit_fit(options: Options) -> contestant.Run:
    import keras

    model = contestant.keras_vit_model(options)
    images, labels = batch(options)

    class Batches(keras.utils.PyDataset):
        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

        def __len__(self) -> int:
            return self.steps

        def __getitem__(self, index: int) -> Any:
            return (images,) if options.task == "inference" else (images, labels)

    if options.task == "inference":
        return lambda steps: model.predict(Batches(steps), verbose=0)
    model.compile(
        keras.optimizers.AdamW(contestant.RATE, weight_decay=contestant.DECAY),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return lambda steps: model.fit(Batches(steps), shuffle=False, verbose=0)


def keras_vit_jit(options: Options) -> contestant.Run:
    import jax
    import keras

    model = contestant.keras_vit_model(options)
    images, labels = map(jax.numpy.asarray, batch(options))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(contestant.RATE, weight_decay=contestant.DECAY)
    optimizer.build(model.trainable_variables)
    trained, others = model.trainable_variables, model.non_trainable_variables
    state = tuple([v.value for v in part] for part in (trained, others, optimizer.variables))

    def forward(weights: Any, others: Any, images: Any) -> Any:
        return model.stateless_call(weights, others, images, training=options.task == "training")

    if options.task == "inference":
        answer = jax.jit(lambda weights, others, images: forward(weights, others, images)[0])

        def infer(steps: int) -> None:
            for _ in range(steps):
                logits = answer(*state[:2], images)
            logits.block_until_ready()

        return infer

    def value(weights: Any, others: Any, images: Any, labels: Any) -> Any:
        logits, others = forward(weights, others, images)
        return loss(labels, logits), others

    def update(state: Any, images: Any, labels: Any) -> Any:
        weights, others, slots = state
        gradient = jax.grad(value, has_aux=True)
        gradients, others = gradient(weights, others, images, labels)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return weights, others, slots

    # The old state's memory takes the new one, as in Keras' own step.
    step = jax.jit(update, donate_argnums=0)

    def train(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state = step(state, images, labels)
        jax.block_until_ready(state)

    return train


def keras_vit_stored(options: Options) -> contestant.Run:
    """As `keras_vit_jit`, with the attention weights (B, K, T, T) in memory: no fused kernel."""
    from keras_vit.layers import attention

    attention.has_fused_kernel = lambda: False  # type: ignore[assignment]
    return keras_vit_jit(options)


def jax_product(options: Options) -> contestant.Run:
    import jax

    shape = (options.matrix, options.matrix)
    matrix = jax.random.normal(jax.random.key(0), shape, options.precision)
    product = jax.jit(lambda a: a @ a)
    return lambda steps: [product(matrix) for _ in range(steps)][-1].block_until_ready()


JAX: dict[str, Callable[[Options], contestant.Run]] = {
    "keras_vit-fit": keras_vit_fit,
    "keras_vit-jit": keras_vit_jit,
    "keras_vit-stored": keras_vit_stored,
    f"jax{turns.PRODUCT}": jax_product,
}
TORCH: dict[str, Callable[[Options], contestant.Run]] = {
    **{f"timm-{mode}": contestant.CONTESTANTS[f"timm-{mode}"].prepare for mode in MODES},
    f"torch{turns.PRODUCT}": contestant.torch_product,
}


def library(name: str) -> str:
    return "jax" if name in JAX else "torch"


def peak_memory(options: Options) -> int | None:
    """Returns the most bytes that the contestant of this process has held on the card at once."""
    if options.contestant in JAX:
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


def compete(options: Options, deadline: float) -> str:
    """Returns the section of one task with one model, with its title."""
    from keras_vit import models

    given = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in NAMES]
    # Compiling needs a C compiler also on a GPU, and minutes on a CPU.
    compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
    base = "timm-compile" if compiler and not options.small else "timm-eager"
    competing = [base, "keras_vit-fit", "keras_vit-jit", *(f"{n}{turns.PRODUCT}" for n in LIMITS)]
    if options.attention:
        base, competing = "keras_vit-stored", ["keras_vit-stored", "keras_vit-jit"]
    commands = {n: [sys.executable, __file__, f"--contestant={n}", *given] for n in competing}
    early = () if options.attention else (base,)
    # PyTorch compiles on the processor meanwhile; XLA tries kernels out, and should be alone.
    found = turns.race(commands, options.rounds, options.seconds, early, deadline)
    size = models.size(f"{options.size}/16").replace(image_size=(options.image_size,) * 2)
    flops = models.count_flops(size) * contestant.PASSES[options.task]
    rounds = min((len(row["steps"]) for row in found.values()), default=0)
    title = f"{options.task.capitalize()}, {options.size}/16, {options.image_size} pixels"
    return (
        f"\n## {title}, batch {options.batch}, {rounds} turns of each\n\n"
        f"{turns.table(found, options.batch, flops, options.matrix, library, base)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a small model, for a CPU")
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--size", nargs="+", choices=contestant.SIZES, default=["B", "L"])
    parser.add_argument("--batch", type=int, default=128, help="images in a step")
    parser.add_argument("--image-size", type=int, default=224, help="in pixels")
    parser.add_argument("--attention", action="store_true", help="fused and stored weights alone")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each, at most")
    parser.add_argument("--seconds", type=float, default=3, help="of a turn")
    parser.add_argument("--minutes", type=float, default=8, help="for all of it")
    parser.add_argument("--out", type=Path, help="Markdown file to write the tables to")
    parser.add_argument("--matrix", type=int, default=8192, help="rows of the product's matrices")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of PyTorch on a CPU")
    parser.add_argument("--precision", choices=contestant.PRECISIONS, default="bfloat16")
    parser.add_argument("--contestant", choices=[*JAX, *TORCH], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        (options.size,), (options.task,) = options.size, options.task
        prepare = {**JAX, **TORCH}[options.contestant]
        turns.answer(lambda: prepare(options), lambda: peak_memory(options))
        return
    if options.small:
        vars(options).update(SMALL)
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # the compiler takes most of it
    packages = PACKAGES[:2] if options.attention else PACKAGES
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    name, on_gpu = card()
    text = (
        f"# On {name}\n\n{'' if on_gpu else NOT_RUN}Python {platform.python_version()}, "
        f"{versions}; in {options.precision}.\nTurns of {options.seconds:g} s at least; "
        "medians, and the range in brackets. Memory is the card's.\n"
    )
    cases = list(itertools.product(options.size, options.task))
    share = 60 * options.minutes / len(cases)
    for number, (size, task) in enumerate(cases, 1):
        # Who is late must not make the last still later: half a share is what getting ready takes.
        if time.perf_counter() - START > share * (len(cases) - 0.5):
            part = f"\n{task.capitalize()} of {size}/16: left out, no time.\n"
        else:
            case = argparse.Namespace(**vars(options) | {"size": size, "task": task})
            part = compete(case, START + number * share)
        text += part
        print(part, flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(text, encoding="utf-8")


def card() -> tuple[str, bool]:
    """Returns what JAX computes on, and whether it is a GPU."""
    import jax

    device = jax.devices()[0]
    return device.device_kind, device.platform == "gpu"


if __name__ == "__main__":
    main()
