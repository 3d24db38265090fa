"""Chains of element-wise operations as one, where TensorFlow computes on a CPU.

TensorFlow's graph computes an operation at a time, each a pass over memory: GELU and its gradient
take some 25 of them, a layer norm some 20. XLA makes one or two of such a chain, but takes longer
for products of matrices than oneDNN, which the graph calls. So in training, on a CPU, the chains
alone are compiled. Inference stays plain TensorFlow, for a served graph must not need XLA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras


def in_training(compute: Callable[..., Any], training: Any) -> Callable[..., Any]:
    """Returns a function to call instead of `compute`, which may be itself."""
    return _differentiable(compute) if training is True and is_enabled() else compute


@functools.cache
def is_enabled() -> bool:
    """Tells whether models are computed by TensorFlow on a CPU."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def fused_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Returns a layer norm over the last axis, in operators of which TensorFlow's graph makes one.

    Its optimizer knows a layer norm by the batch norm in it, as tf.keras had it, of float32, and
    calls oneDNN where that is there.

    Reference: `FindMklLayerNorm` of
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/grappler/optimizers/remapper.cc
    """
    import tensorflow as tf

    shape = tf.shape(x)
    number, empty = tf.reduce_prod(shape[:-1]), tf.constant([], x.dtype)
    normed = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, tf.stack([1, number, x.shape[-1], 1])),
        scale=tf.fill([number], 1.0),
        offset=tf.fill([number], 0.0),
        mean=empty,
        variance=empty,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    )
    return tf.reshape(normed.y, shape) * gamma + beta


@functools.cache
def one_pass(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a chain by XLA, where it `is_enabled`."""
    import tensorflow as tf

    run = tf.function(compute, jit_compile=True, autograph=False, reduce_retracing=True)
    return lambda *inputs: run(*map(tf.convert_to_tensor, inputs))  # of Keras' variables too


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

    # A variable is read outside, where its gradient is known.
    return lambda *inputs: differentiable(*map(tf.convert_to_tensor, inputs))
