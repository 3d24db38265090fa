"""A dense layer with an activation.

Letters: D width of the input; M width of the layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.layers.compiled import in_training


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(keras.layers.Dense):
    """Keras' dense layer, with bias and activation in one pass over the tensor in training.

    TensorFlow on a CPU takes a product with its bias for one operation, and in bfloat16 that takes
    twice the time of the product alone where the layer is wide; a perceptron trains in half the
    time if bias, activation and their gradients are a compiled chain instead
    (docs/decisions/performance.md). In inference, and elsewhere, this is Keras' layer.

    Args:
        units: Width M of the layer.
        **kwargs: What `keras.layers.Dense` takes, such as `activation`.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of shape (..., M).

    Example:
        >>> tuple(Dense(11, activation="gelu")(np.ones((2, 5, 6), "float32")).shape)
        (2, 5, 11)
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        finish = _finish(self.activation, self.compute_dtype)
        chain = in_training(finish, training)
        if chain is finish or self.bias is None:
            return super().call(inputs, training=training)
        return chain(ops.matmul(inputs, self.kernel), self.bias)


@functools.cache
def _finish(activation: Callable[[Any], Any], dtype: str) -> Callable[..., Any]:
    def compute(product: Any, bias: Any) -> Any:
        wide = keras.backend.result_type(dtype, "float32")  # the bias' gradient is a long sum
        return ops.cast(activation(ops.cast(product, wide) + ops.cast(bias, wide)), dtype)

    return compute
