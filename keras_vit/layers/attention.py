"""Multi-head self-attention.

Letters: B batch; T tokens; D hidden size; K heads; d = D / K size of a head.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import NamedVariables
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.position_embedding import POSITIONS


@functools.cache
def has_fused_kernel() -> bool:
    """Returns whether attention is one fused kernel, which requires JAX on a GPU or TPU."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return jax.default_backend() != "cpu"


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(NamedVariables):
    """Multi-head self-attention with one projection for queries, keys and values.

    Appendix A of the paper: [q, k, v] = z U_qkv, A = softmax(q k^T / sqrt(d)), SA(z) = A v; the
    heads are concatenated and projected by U_msa. Queries, keys and values are computed by one
    matrix product and one transpose, then unstacked: the fastest form measured on the TensorFlow
    CPU backend (docs/decisions/0019-performance.md). On GPUs and TPUs with JAX the rest is
    `keras.ops.dot_product_attention`, in bfloat16 and float16 one kernel that stores no (T, T)
    weights in memory, unless the weights are returned or dropout is applied to them.

    Args:
        num_heads: Number of heads K, each of size D / K.
        qkv_bias: Whether queries, keys and values have a bias.
        dropout_rate: Fraction of the attention weights dropped in training, in [0, 1).
        key_bias: Whether keys have a bias as well, with `qkv_bias`; False in DINOv3, EVA-02, BEiT.
        position_embedding: Kind of positions, see `PatchEncoder`; only `"rotary"`,
            `"learned_rotary"` and `"relative"` act in attention.
        position_grid: Rows and columns of patches of the table of `"relative"`.

    Call arguments:
        inputs: Tensor of shape (B, T, D), or of shape (B*T, D) with `num_tokens`.
        return_attention_scores: Whether the attention weights are returned as well.
        num_tokens: Number of tokens T per example, if `inputs` has rank 2.
        num_queries: Number Q of first tokens whose outputs are computed; None for all T.
        positions: Tensor from `TokenPositions`, for kinds that act in attention.

    Returns:
        Tensor of the shape of `inputs`, with Q tokens; with `return_attention_scores` a pair of
        this tensor and the weights after the softmax, (B, K, Q, T), whose rows sum to 1.

    Raises:
        ValueError: If an argument is out of range, D is not a multiple of `num_heads`, or
            `num_tokens` does not match the rank of `inputs`.

    Examples:
        >>> attention = MultiHeadSelfAttention(num_heads=2)
        >>> z, scores = attention(np.ones((2, 5, 6), "float32"), return_attention_scores=True)
        >>> tuple(z.shape), tuple(scores.shape)
        ((2, 5, 6), (2, 2, 5, 5))

    Reference: https://arxiv.org/abs/2010.11929
    """

    # Whether 1 / sqrt(d) is folded into the query weights; always False in a saved model.
    scale_folded = False
    # Whether a subclass reads or changes the attention weights; a fused kernel returns none.
    needs_weights = False

    def __init__(
        self,
        num_heads: int,
        qkv_bias: bool = True,
        dropout_rate: float = 0.0,
        key_bias: bool = True,
        position_embedding: str = "none",
        position_grid: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        arguments.one_of("position_embedding", position_embedding, tuple(POSITIONS))
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.qkv_bias, self.key_bias = bool(qkv_bias), bool(key_bias)
        self.position_embedding, self.position_grid = position_embedding, position_grid
        self.kind = POSITIONS[position_embedding]
        self.dropout_rate = arguments.rate("dropout_rate", dropout_rate)
        self.dropout = self._sublayer(Dropout, self.dropout_rate, name="dropout")
        self.input_spec = keras.layers.InputSpec(min_ndim=2, max_ndim=3)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        d_model = arguments.hidden_size(input_shape[-1], self.num_heads)
        self.qkv = self._sublayer(
            keras.layers.Dense,
            3 * d_model,
            use_bias=self.qkv_bias and self.key_bias,
            # Glorot limit of each of the three (D, D) matrices, not of the fused matrix.
            kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_avg", "uniform"),
            name="qkv",
        )
        self.out = self._sublayer(keras.layers.Dense, d_model, name="out")
        self.qkv.build(input_shape)
        self.out.build(input_shape)
        self.query_value_bias = None
        if self.qkv_bias and not self.key_bias:
            self.query_value_bias = self.add_weight(
                name="query_value_bias", shape=(2 * d_model,), initializer="zeros"
            )
        if self.kind.in_attention:
            self.kind.check(d_model, self.num_heads)
        shapes = self.kind.attention_shapes(self.position_grid or (0, 0), self.num_heads)
        if shapes and self.position_grid is None:
            raise ValueError(
                f"`position_grid` must be (rows, columns) of the patches for position_embedding="
                f"{self.position_embedding!r}. Received: position_grid=None"
            )
        self.position_variables = {
            name: self.add_weight(name=name, shape=shape, initializer="zeros")
            for name, shape in shapes.items()
        }

    def call(
        self,
        inputs: Any,
        return_attention_scores: bool = False,
        num_tokens: Any = None,
        num_queries: int | None = None,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        if (num_tokens is None) != (len(inputs.shape) == 3):
            raise ValueError(
                "`num_tokens` must be given if, and only if, `inputs` has shape (B*T, D). "
                f"Received: num_tokens={num_tokens}, inputs of shape {tuple(inputs.shape)}"
            )
        t = ops.shape(inputs)[1] if num_tokens is None else num_tokens
        q, k, v = self.project_in(inputs, t)
        q, k = self.kind.rotate(q, positions), self.kind.rotate(k, positions)
        bias = self.kind.logits(self.position_variables, positions)
        if num_queries is not None:
            q, t = q[:, :, :num_queries], num_queries
            bias = None if bias is None else bias[:, :, :num_queries]
        uses_dropout = training is not False and self.dropout_rate > 0
        needs_scores = self.needs_weights or return_attention_scores or bias is not None
        if needs_scores or uses_dropout or not has_fused_kernel():
            scores = self.attention_weights(q, k, bias)  # (B, K, T, T)
            z = ops.matmul(self.dropout(scores, training=training), v)  # (B, K, T, d)
        else:
            z = self.fused_attention(q, k, v, training)  # (B, K, T, d)
        z = self.project_out(z)  # (BT, D)
        if num_tokens is None:
            z = ops.reshape(z, (-1, t, inputs.shape[-1]))  # (B, T, D)
        return (z, scores) if return_attention_scores else z

    def project_in(self, inputs: Any, num_tokens: Any) -> tuple[Any, Any, Any]:
        """Computes queries, keys and values (B, K, T, d) from inputs (B, T, D) or (BT, D)."""
        d_model = inputs.shape[-1]
        qkv = self.qkv(ops.reshape(inputs, (-1, d_model)))  # (BT, 3D)
        if self.query_value_bias is not None:
            query, value = ops.split(ops.cast(self.query_value_bias, qkv.dtype), 2)
            qkv = qkv + ops.concatenate([query, ops.zeros_like(query), value])
        qkv = ops.reshape(qkv, (-1, num_tokens, 3, self.num_heads, d_model // self.num_heads))
        # (3, B, K, T, d): the three are contiguous, so that none is copied
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), 3)
        return q, k, v

    def project_out(self, z: Any) -> Any:
        """Merges heads (B, K, T, d) and applies the output projection, giving (BT, D)."""
        z = ops.transpose(z, (0, 2, 1, 3))  # (B, T, K, d)
        return self.out(ops.reshape(z, (-1, self.num_heads * z.shape[-1])))  # (BT, D)

    def fused_attention(self, q: Any, k: Any, v: Any, training: bool | None = None) -> Any:
        """Computes softmax(q k^T / sqrt(d)) v without storing the weights; returns (B, K, T, d)."""
        t, mask = q.shape[2], None
        q, k, v = (ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))  # (B, T, K, d)
        if training and t % 2:
            # cuDNN's kernel for training requires an even T; XLA would store the weights.
            q, k, v = (ops.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (q, k, v))
            mask = np.tile(np.arange(t + 1) < t, (1, 1, t + 1, 1))  # (1, 1, T + 1, T + 1)
        scale = 1.0 if self.scale_folded else None
        z = ops.dot_product_attention(q, k, v, mask=mask, scale=scale)[:, :t]
        return ops.transpose(z, (0, 2, 1, 3))

    def attention_weights(self, q: Any, k: Any, bias: Any = None) -> Any:
        """Computes the attention weights, the softmax of the scores, of shape (B, K, T, T)."""
        return ops.softmax(self.attention_scores(q, k, bias))

    def attention_scores(self, q: Any, k: Any, bias: Any = None) -> Any:
        """Computes the attention scores q k^T / sqrt(d) + bias, of shape (B, K, T, T)."""
        if not self.scale_folded:
            q = q * q.shape[-1] ** -0.5
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        return scores if bias is None else scores + ops.cast(bias, scores.dtype)

    def fold_scale(self) -> None:
        """Folds 1 / sqrt(d) into the query weights, for models that will not be saved."""
        if self.scale_folded:
            return
        d_model = self.qkv.kernel.shape[0]
        bias = [] if self.query_value_bias is None else [self.query_value_bias]
        for weight in [*self.qkv.weights, *bias]:  # (D, 3D), and (3D,) or (2D,)
            scale = np.ones(weight.shape[-1], "float32")
            scale[:d_model] = (d_model // self.num_heads) ** -0.5
            weight.assign(weight * scale)
        self.scale_folded = True

    def compute_output_spec(
        self,
        inputs: Any,
        return_attention_scores: bool = False,
        num_tokens: Any = None,
        num_queries: int | None = None,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        batch, t = inputs.shape[:2] if num_tokens is None else (None, num_tokens)
        queries = t if num_queries is None else num_queries
        shape = inputs.shape
        if num_queries is not None:
            shape = (batch, queries, shape[-1]) if num_tokens is None else (None, shape[-1])
        z = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return z
        return z, keras.KerasTensor((batch, self.num_heads, queries, t), dtype=self.compute_dtype)
