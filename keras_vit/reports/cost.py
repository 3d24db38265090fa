"""What a model costs: operations, memory, images a second."""

from __future__ import annotations

import contextlib
import io
import re
import timeit
from pathlib import Path
from typing import Any

import keras
import numpy as np

_TURNS = 3  # of a measurement; the fastest counts, for other work only slows down


def flops(model: keras.Model) -> int | None:
    """Returns the floating-point operations of one image, as TensorFlow's or XLA's count has them.

    A multiplication and an addition count as two.
    """
    shape = (1, *model.input_shape[1:])
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(lambda x: model(x, training=False))
        graph = function.get_concrete_function(tf.TensorSpec(shape, tf.float32)).graph
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        options["output"] = "none"
        level = tf.get_logger().level
        tf.get_logger().setLevel("ERROR")  # the count warns that it is of TensorFlow 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                profile = tf.compat.v1.profiler.profile(graph, options=options)
        finally:
            tf.get_logger().setLevel(level)
        return int(profile.total_float_ops)
    if backend == "jax":
        import jax

        variables = [v.value for v in (*model.trainable_variables, *model.non_trainable_variables)]
        number = len(model.trainable_variables)

        def run(values: list[Any], x: Any) -> Any:
            return model.stateless_call(values[:number], values[number:], x, training=False)[0]

        lowered = jax.jit(run).lower(variables, np.zeros(shape, "float32"))
        counted = lowered.cost_analysis() or {}
        return int(counted["flops"]) if "flops" in counted else None
    return None


def peak_memory() -> int | None:
    """Returns the most memory that this process has held at once."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    # Not `resource.getrusage`: what it reports of a child begins with the parent's memory.
    match = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def inference_speed(model: keras.Model, images: int = 64, batch_size: int = 32) -> float:
    """Measures how fast `predict` is on this machine, on noise that lies in memory."""
    noise = np.random.default_rng(0).normal(size=(images, *model.input_shape[1:])).astype("float32")
    model.predict(noise[:batch_size], batch_size, verbose=0)  # traces and compiles
    timer = timeit.Timer(lambda: model.predict(noise, batch_size, verbose=0))
    return images / min(timer.repeat(_TURNS, number=1))
