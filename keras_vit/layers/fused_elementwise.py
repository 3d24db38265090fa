"""XLA fusion of chains of element-wise operations, for TensorFlow on a CPU.

TensorFlow's graph runs one operation at a time, each a pass over memory: about 25 for GELU and its
gradient, about 20 for a layer norm. XLA fuses a chain into one or two passes, but its matrix
products are slower than those of oneDNN, which the graph calls. So only the chains are compiled,
in training on a CPU. Inference stays plain TensorFlow, because a served graph must not need XLA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras


def in_training(compute: Callable[..., Any], training: Any) -> Callable[..., Any]:
    """Returns `compute`, compiled with XLA if `training` is set and `is_enabled()` is true."""
    return _differentiable(compute) if training is True and is_enabled() else compute


@functools.cache
def is_enabled() -> bool:
    """Returns whether fusion applies: with the TensorFlow backend on a CPU."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def fused_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Computes layer normalization in a form that TensorFlow's graph optimizer can fuse.

    The graph optimizer recognizes a layer norm by a float32 batch norm in it, as in tf.keras, and
    calls oneDNN where available.

    Reference: `FindMklLayerNorm` of
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/grappler/optimizers/remapper.cc
    """
    import tensorflow as tf

    shape = tf.shape(x)
    number, empty = tf.reduce_prod(shape[:-1]), tf.constant([], x.dtype)
    normalized = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, tf.stack([1, number, x.shape[-1], 1])),
        scale=tf.fill([number], 1.0),
        offset=tf.fill([number], 0.0),
        mean=empty,
        variance=empty,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    )
    return tf.reshape(normalized.y, shape) * gamma + beta


@functools.cache
def one_pass(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a chain of element-wise operations with XLA; requires `is_enabled()`."""
    import tensorflow as tf

    run = tf.function(compute, jit_compile=True, autograph=False, reduce_retracing=True)
    return lambda *inputs: run(*map(tf.convert_to_tensor, inputs))  # Keras variables as well


@functools.cache
def _differentiable(compute: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    forward = one_pass(compute)

    @one_pass
    def backward(upstream: Any, *inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = compute(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    @tf.custom_gradient
    def differentiable(*inputs: Any) -> Any:
        return forward(*inputs), lambda upstream: backward(upstream, *inputs)

    # Variables are read outside the custom gradient, so that their gradients are recorded.
    return lambda *inputs: differentiable(*map(tf.convert_to_tensor, inputs))
