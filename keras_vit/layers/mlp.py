"""MLP of a transformer block, and a dense layer with a fused activation.

Letters: BT tokens of all examples; D hidden size, or width of the input; M width of the layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.fused_elementwise import in_training
from keras_vit.layers.layer_norm import LayerNorm

GELUS = ("tanh", "exact", "quick")


@keras.saving.register_keras_serializable(package="keras_vit")
def quick_gelu(x: Any) -> Any:
    """Computes x * sigmoid(1.702 x), the approximation of GELU in OpenAI's CLIP.

    Args:
        x: Tensor of any shape.

    Returns:
        Tensor of the same shape.

    Examples:
        >>> round(float(quick_gelu(np.float32(1))), 3)
        0.846

    Reference: section 2 of https://arxiv.org/abs/1606.08415
    """
    return x * ops.sigmoid(1.702 * x)


# The default of `ops.gelu` is the tanh approximation, that of `keras.activations.gelu` is exact.
_FUNCTIONS = {"tanh": ops.gelu, "exact": keras.activations.gelu, "quick": quick_gelu}


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(BaseLayer):
    """MLP with two dense layers, a GELU between them, and dropout after each dense layer.

    Section 3.1 of the paper: "The MLP contains two layers with a GELU non-linearity."

    Args:
        mlp_dim: Width M of the hidden layer.
        gelu: `"tanh"`: the approximation in the official code; `"exact"`: with the error
            function, as in PyTorch libraries; `"quick"`: x * sigmoid(1.702 x), as in CLIP.
        dropout_rate: Fraction of the values dropped in training, in [0, 1).
        swiglu: Whether the first layer computes 2M values, and the hidden layer is
            silu(first half) * second half, instead of a GELU (SwiGLU).
        norm_epsilon: Added to the variance in a layer norm of the hidden layer; None for no norm.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If an argument is out of range.

    Examples:
        >>> tuple(MLP(mlp_dim=11)(np.ones((2, 5, 6), "float32")).shape)
        (2, 5, 6)

    Reference: https://arxiv.org/abs/2010.11929, https://arxiv.org/abs/1606.08415 and, for SwiGLU,
    https://arxiv.org/abs/2002.05202
    """

    def __init__(
        self,
        mlp_dim: int,
        gelu: str = "tanh",
        dropout_rate: float = 0.0,
        swiglu: bool = False,
        norm_epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        arguments.one_of("gelu", gelu, GELUS)
        self.mlp_dim = arguments.positive_int("mlp_dim", mlp_dim)
        self.gelu, self.swiglu, self.norm_epsilon = gelu, bool(swiglu), norm_epsilon
        self.dropout_rate = arguments.rate("dropout_rate", dropout_rate)
        self.expand = self._sublayer(
            Dense,
            self.mlp_dim * (1 + self.swiglu),
            activation=None if swiglu else _FUNCTIONS[gelu],
            name="expand",
        )
        self.norm = None
        if norm_epsilon is not None:
            self.norm = self._sublayer(LayerNorm, epsilon=norm_epsilon, name="norm")
        self.dropout = self._sublayer(Dropout, self.dropout_rate, name="dropout")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.reduce = self._sublayer(keras.layers.Dense, input_shape[-1], name="reduce")
        self.expand.build(input_shape)
        self.reduce.build((*input_shape[:-1], self.mlp_dim))
        if self.norm is not None:
            self.norm.build((*input_shape[:-1], self.mlp_dim))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if len(inputs.shape) > 2:
            shape = ops.shape(inputs)
            x = self.call(ops.reshape(inputs, (-1, shape[-1])), training)
            return ops.reshape(x, shape)
        x = self.expand(inputs, training=training)  # (BT, M)
        if self.swiglu:
            gate, x = ops.split(x, 2, axis=-1)  # of (BT, 2M)
            x = ops.silu(gate) * x
        x = self.dropout(x, training=training)
        if self.norm is not None:
            x = self.norm(x, training=training)
        x = self.reduce(x)  # (BT, D)
        return self.dropout(x, training=training)


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(keras.layers.Dense):
    """Keras' dense layer, with bias and activation fused into one pass in training.

    TensorFlow on a CPU fuses a matrix product and its bias. In bfloat16 the fused operation takes
    twice the time of the product alone in a wide layer. An MLP trains in half the time if bias,
    activation and their gradients are a compiled chain instead
    (docs/decisions/0019-performance.md). In inference and on other devices this is Keras' layer.

    Args:
        units: Width M of the layer.
        **kwargs: Arguments of `keras.layers.Dense`, for example `activation`.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of shape (..., M).

    Examples:
        >>> tuple(Dense(11, activation="gelu")(np.ones((2, 5, 6), "float32")).shape)
        (2, 5, 11)
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        plain = _bias_and_activation(self.activation, self.compute_dtype)
        compiled = in_training(plain, training)
        if compiled is plain or self.bias is None:
            return super().call(inputs, training=training)
        return compiled(ops.matmul(inputs, self.kernel), self.bias)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        # Keras refuses subclasses, whose `call` a quantized layer does not use; not needed here.
        super().quantize(mode, type_check=False, config=config)


@functools.cache
def _bias_and_activation(activation: Callable[[Any], Any], dtype: str) -> Callable[..., Any]:
    def compute(product: Any, bias: Any) -> Any:
        wide = keras.backend.result_type(dtype, "float32")  # the bias' gradient is a long sum
        return ops.cast(activation(ops.cast(product, wide) + ops.cast(bias, wide)), dtype)

    return compute
