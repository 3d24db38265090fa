"""Gradients of a function, which Keras has for training only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras


def gradients(
    function: Callable[[list[Any]], tuple[Any, Any]], tensors: list[Any]
) -> tuple[list[Any], Any]:
    """Returns what a scalar changes by where tensors change.

    Args:
        function: Takes a list of tensors; returns a scalar, and whatever else it computed, of
            tensors in lists and dictionaries.
        tensors: Where the gradient is taken.

    Returns:
        The gradient of the scalar for each tensor, of the tensor's shape; and what else the
        function computed.

    Raises:
        ValueError: If Keras runs on a backend other than TensorFlow and JAX.

    Example:
        >>> x = keras.ops.convert_to_tensor([1.0, 3.0])
        >>> found, _ = gradients(lambda tensors: (keras.ops.sum(tensors[0] ** 2), None), [x])
        >>> keras.ops.convert_to_numpy(found[0]).tolist()
        [2.0, 6.0]
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            scalar, other = function(tensors)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(scalar, tensors, unconnected_gradients=zero), other
    if backend == "jax":
        import jax

        return jax.grad(function, has_aux=True)(tensors)
    raise ValueError(
        "Keras must run on TensorFlow or JAX (KERAS_BACKEND) where a gradient is asked for. "
        f"Received: the backend {backend!r}"
    )
