"""Computational cost of a model: floating-point operations, peak memory and inference speed."""

from __future__ import annotations

import contextlib
import io
import timeit
from typing import Any

import keras
import numpy as np

from keras_vit.accelerators import proc_field

_REPEATS = 3  # of a measurement; the fastest counts, as other processes only slow it down


def flops(model: keras.Model) -> int | None:
    """Returns the number of floating-point operations per image counted by TensorFlow or XLA.

    A multiplication and an addition count as two operations. Returns None if there is no count.
    """
    shape = (1, *model.input_shape[1:])
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(lambda x: model(x, training=False), autograph=False)
        graph = function.get_concrete_function(tf.TensorSpec(shape, tf.float32)).graph
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        options["output"] = "none"
        log_level = tf.get_logger().level
        tf.get_logger().setLevel("ERROR")  # hides the warning that the profiler is of TensorFlow 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                profile = tf.compat.v1.profiler.profile(graph, options=options)
        finally:
            tf.get_logger().setLevel(log_level)
        return int(profile.total_float_ops)
    if backend == "jax":
        import jax

        variables = [v.value for v in (*model.trainable_variables, *model.non_trainable_variables)]
        number = len(model.trainable_variables)

        def run(values: list[Any], x: Any) -> Any:
            return model.stateless_call(values[:number], values[number:], x, training=False)[0]

        lowered = jax.jit(run).lower(variables, np.zeros(shape, "float32"))
        analysis = lowered.cost_analysis() or {}
        return int(analysis["flops"]) if "flops" in analysis else None
    return None


def peak_memory() -> int | None:
    """Returns the peak memory of the current process in bytes; None if unknown."""
    # Not `resource.getrusage`: in a child process its value starts at the parent's memory.
    kib = proc_field("self/status", "VmHWM").removesuffix(" kB")
    return int(kib) * 1024 if kib else None


def inference_speed(model: keras.Model, images: int = 64, batch_size: int = 32) -> float:
    """Measures how many images per second `predict` processes on this machine."""
    noise = np.random.default_rng(0).normal(size=(images, *model.input_shape[1:])).astype("float32")
    model.predict(noise[:batch_size], batch_size, verbose=0)  # traces and compiles
    timer = timeit.Timer(lambda: model.predict(noise, batch_size, verbose=0))
    return images / min(timer.repeat(_REPEATS, number=1))
