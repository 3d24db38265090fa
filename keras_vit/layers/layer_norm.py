"""Layer normalization.

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

# Number of values above which the fused operator, with its overhead of 0.1 ms, is faster
# (docs/decisions/0019-performance.md).
_FUSED = 2**17


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, with fewer passes over the tensor than in Keras.

    Computes gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta, at least in float32. Keras
    rearranges the formula into one product and one sum per value. A compiler undoes this, but
    TensorFlow's graph, which runs one operation at a time, does not: there this layer takes three
    quarters of the time (docs/decisions/0019-performance.md). The formula also has no negation,
    which TFLite lacks for integers.

    Args:
        epsilon: Added to the variance.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `axis` is not -1, `scale` or `center` is False, or `rms_scaling` is True.

    Examples:
        >>> [round(float(value)) for value in LayerNorm()(np.array([[1.0, 3.0]], "float32"))[0]]
        [-1, 1]

    Reference: https://arxiv.org/abs/1607.06450
    """

    # Whether to use operators that TensorFlow's graph optimizer fuses: set on a copy for
    # inference, not on the model, and not for TFLite, which lacks these operators.
    fused = False
    # Whether gamma and beta are 1 and 0 because they are folded into the next layer's weights.
    folded = False

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=arguments.positive("epsilon", epsilon), **kwargs)
        if not is_plain(self):
            raise ValueError(
                "`axis` must be -1, `scale` and `center` must be True, and `rms_scaling` must "
                "be False; use `keras.layers.LayerNormalization` for other settings. Received: "
                f"axis={self.axis}, scale={self.scale}, center={self.center}, "
                f"rms_scaling={self.rms_scaling}"
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        normalize = in_training(
            _normalize(self.epsilon, self.compute_dtype, not self.folded), training
        )
        gamma, beta = ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta)
        if self.fused:
            x = ops.cast(inputs, self.variable_dtype)
            return ops.cond(
                ops.size(x) > _FUSED,
                lambda: ops.cast(fused_norm(x, gamma, beta, self.epsilon), self.compute_dtype),
                lambda: normalize(x, gamma, beta),
            )
        return normalize(ops.convert_to_tensor(inputs), gamma, beta)

    def fold_into(self, dense: keras.layers.Dense) -> None:
        """Folds gamma and beta into the dense layer `dense`, for models that will not be saved."""
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
def _normalize(epsilon: float, dtype: str, affine: bool = True) -> Callable[..., Any]:
    def compute(x: Any, gamma: Any, beta: Any) -> Any:
        # Squares overflow in float16, and bfloat16 is too coarse for sums.
        x = ops.cast(x, keras.backend.result_type(dtype, "float32"))
        x = x - ops.mean(x, axis=-1, keepdims=True)
        # Not `square`: TFLite converts it to an operator without 16-bit activations.
        variance = ops.mean(x * x, axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + epsilon)
        if affine:
            x = x * ops.cast(gamma, x.dtype) + ops.cast(beta, x.dtype)
        return ops.cast(x, dtype)

    return compute


def is_plain(layer: keras.layers.LayerNormalization) -> bool:
    """Returns whether a layer norm normalizes the last axis and has both gamma and beta."""
    config = layer.get_config()
    has_both = config["scale"] and config["center"] and not config.get("rms_scaling")
    return bool(has_both and config["axis"] in (-1, [-1], (-1,)))
