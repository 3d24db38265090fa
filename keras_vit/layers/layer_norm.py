"""Layer normalisation.

Letters: D hidden size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments
from keras_vit.layers.fused_elementwise import fused_norm, in_training

# Number of values from which on the fused operator, which takes 0.1 ms to start, takes less time
# (docs/decisions/0019-performance.md).
_FUSED = 2**17


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer normalisation over the last axis, in fewer passes over the tensor.

    gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta, computed in float32 at least. Keras
    rearranges it into a product and a sum per value, which a compiler undoes and TensorFlow's
    graph, an operation at a time, does not: there the form below takes three quarters of the
    time (docs/decisions/0019-performance.md). It also has no negation, which TFLite lacks in whole
    numbers.

    Args:
        epsilon: Added to the variance.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If another axis, or a norm without gain or offset, is asked for.

    Example:
        >>> [round(float(value)) for value in LayerNorm()(np.array([[1.0, 3.0]], "float32"))[0]]
        [-1, 1]

    Reference: https://arxiv.org/abs/1607.06450
    """

    # Whether TensorFlow's graph has operators that its optimizer makes one of: a property of a
    # copy for inference, not of the model, and not for TFLite, which lacks them.
    fused = False
    # Whether gain and offset are 1 and 0, since the weights of the next layer hold them.
    folded = False

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=arguments.positive("epsilon", epsilon), **kwargs)
        if not is_plain(self):
            raise ValueError(
                "`axis` must be -1, with `scale` and `center` and without `rms_scaling`; "
                "`keras.layers.LayerNormalization` has the others. "
                f"Received: axis={self.axis}, scale={self.scale}, center={self.center}, "
                f"rms_scaling={self.rms_scaling}"
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        normalise = in_training(
            _normalise(self.epsilon, self.compute_dtype, not self.folded), training
        )
        gamma, beta = ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta)
        if self.fused:
            x = ops.cast(inputs, self.variable_dtype)
            return ops.cond(
                ops.size(x) > _FUSED,
                lambda: ops.cast(fused_norm(x, gamma, beta, self.epsilon), self.compute_dtype),
                lambda: normalise(x, gamma, beta),
            )
        return normalise(ops.convert_to_tensor(inputs), gamma, beta)

    def fold_into(self, dense: keras.layers.Dense) -> None:
        """Moves gain and offset into the only layer that follows, for a model that is not saved."""
        if self.folded or dense.bias is None:
            return
        gamma, beta = map(ops.convert_to_numpy, (self.gamma, self.beta))
        kernel = ops.convert_to_numpy(dense.kernel)
        dense.bias.assign(dense.bias + beta @ kernel)
        dense.kernel.assign(gamma[:, np.newaxis] * kernel)
        self.gamma.assign(np.ones_like(gamma))
        self.beta.assign(np.zeros_like(beta))
        self.folded = True


@functools.cache
def _normalise(epsilon: float, dtype: str, affine: bool = True) -> Callable[..., Any]:
    def compute(x: Any, gamma: Any, beta: Any) -> Any:
        # Squares overflow in float16, and bfloat16 is too coarse for sums.
        x = ops.cast(x, keras.backend.result_type(dtype, "float32"))
        x = x - ops.mean(x, axis=-1, keepdims=True)
        # Not `square`: TFLite's converter makes an operator of it that 16-bit activations lack.
        variance = ops.mean(x * x, axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + epsilon)
        if affine:
            x = x * ops.cast(gamma, x.dtype) + ops.cast(beta, x.dtype)
        return ops.cast(x, dtype)

    return compute


def is_plain(layer: keras.layers.LayerNormalization) -> bool:
    """Tells a layer norm over the last axis, with a gain and an offset, from others."""
    config = layer.get_config()
    affine = config["scale"] and config["center"] and not config.get("rms_scaling")
    return bool(affine and config["axis"] in (-1, [-1], (-1,)))
