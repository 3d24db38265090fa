"""Multi-head self-attention.

Letters: B batch; T tokens; D hidden size; K heads; d = D / K size of a head.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(keras.layers.Layer):
    """Multi-head self-attention with one projection for queries, keys and values.

    Appendix A of the paper: [q, k, v] = z U_qkv, A = softmax(q k^T / sqrt(d)), SA(z) = A v; the
    heads are concatenated and projected by U_msa. The projection is one matrix of 3D columns,
    split while the tensor still has rank 3: on the TensorFlow CPU backend and in TFLite the
    fastest of the forms measured.

    Args:
        num_heads: Heads K; they share the hidden size equally.
        qkv_bias: Whether queries, keys and values have a bias.
        dropout_rate: Fraction of the attention weights dropped in training, in [0, 1).

    Call arguments:
        inputs: Tensor of shape (B, T, D).
        return_attention_scores: Whether the attention weights are returned as well.

    Returns:
        Tensor of shape (B, T, D); with `return_attention_scores` the pair of it and the
        weights after the softmax, (B, K, T, T), rows summing to 1.

    Raises:
        ValueError: If an argument is out of range or D is no multiple of `num_heads`.

    Example:
        >>> attention = MultiHeadSelfAttention(num_heads=2)
        >>> z, scores = attention(np.ones((2, 5, 6), "float32"), return_attention_scores=True)
        >>> tuple(z.shape), tuple(scores.shape)
        ((2, 5, 6), (2, 2, 5, 5))

    Reference: https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self, num_heads: int, qkv_bias: bool = True, dropout_rate: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = checks.positive_int("num_heads", num_heads)
        self.qkv_bias = bool(qkv_bias)
        self.dropout_rate = checks.rate("dropout_rate", dropout_rate)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        d_model = checks.hidden_size(input_shape[-1], self.num_heads)
        self.qkv = keras.layers.Dense(
            3 * d_model,
            use_bias=self.qkv_bias,
            # Glorot's limit for each of the three (D, D) matrices, not for the fused one.
            kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_avg", "uniform"),
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name="qkv",
        )
        self.out = keras.layers.Dense(
            d_model, trainable=self.trainable, dtype=self.dtype_policy, name="out"
        )
        self.qkv.build(input_shape)
        self.out.build(input_shape)

    def call(
        self, inputs: Any, return_attention_scores: bool = False, training: bool | None = None
    ) -> Any:
        _, t, d_model = ops.shape(inputs)
        head_size = d_model // self.num_heads
        q, k, v = (
            ops.transpose(ops.reshape(x, (-1, t, self.num_heads, head_size)), (0, 2, 1, 3))
            for x in ops.split(self.qkv(inputs), 3, axis=-1)
        )  # (B, K, T, d) each
        scores = self.attention_weights(q, k)  # (B, K, T, T)
        z = ops.matmul(self.dropout(scores, training=training), v)  # (B, K, T, d)
        z = ops.reshape(ops.transpose(z, (0, 2, 1, 3)), (-1, t, d_model))  # (B, T, D)
        z = self.out(z)
        return (z, scores) if return_attention_scores else z

    def attention_weights(self, q: Any, k: Any) -> Any:
        """Returns the weights A = softmax(q k^T / sqrt(d)), (B, K, T, T), of (B, K, T, d) each."""
        return ops.softmax(ops.matmul(q * q.shape[-1] ** -0.5, ops.transpose(k, (0, 1, 3, 2))))

    def compute_output_spec(
        self, inputs: Any, return_attention_scores: bool = False, training: bool | None = None
    ) -> Any:
        z = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return z
        batch, t, _ = inputs.shape
        return z, keras.KerasTensor((batch, self.num_heads, t, t), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "qkv_bias": self.qkv_bias,
            "dropout_rate": self.dropout_rate,
        }
