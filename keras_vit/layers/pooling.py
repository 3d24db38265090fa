"""Pooling of tokens into one vector per image.

Letters: B batch; T tokens, p prefix tokens before the patches; D hidden size; K heads; d = D / K
size of a head.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.choices import TOKEN_POOLINGS
from keras_vit.layers.base import BaseLayer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPooling(BaseLayer):
    """Pooling layer that returns a prefix token, the mean or maximum of the patch tokens, or both.

    Args:
        mode: `"token"`: one of the prefix tokens (equation 4 of the paper); `"gap"`: the mean
            over the patches (appendix D.3); `"max"`: the maximum over the patches;
            `"token_gap"`: a prefix token and the mean, joined, as in DINOv2's linear classifiers.
        prefix_tokens: Number p of tokens in front of the patches; the mean and the maximum
            exclude them.
        index: Index of the prefix token.

    Call arguments:
        inputs: Tensor of shape (B, T, D).
        sizes: Weight of each token in the mean, (B, T), as returned by `MergingBlock`; by default
            equal. Only for a mean.

    Returns:
        Tensor of shape (B, D), or (B, 2 D) with `"token_gap"`.

    Raises:
        ValueError: If `mode` is unknown, or there is no prefix token `index` to read.

    Examples:
        >>> tuple(TokenPooling("gap", prefix_tokens=0)(np.ones((2, 5, 6), "float32")).shape)
        (2, 6)

    Reference: https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self, mode: str = "token", prefix_tokens: int = 1, index: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        arguments.one_of("mode", mode, TOKEN_POOLINGS)
        self.mode = mode
        self.prefix_tokens = arguments.count("prefix_tokens", prefix_tokens)
        self.index = arguments.count("index", index)
        if self.reads_token and index >= prefix_tokens:
            raise ValueError(
                "`mode` must be 'gap' or 'max' if there is no prefix token at `index`. "
                f"Received: mode={mode!r}, prefix_tokens={prefix_tokens}, index={index}"
            )
        self.input_spec = keras.layers.InputSpec(ndim=3)

    @property
    def reads_token(self) -> bool:
        """True if a prefix token is part of the output."""
        return self.mode in ("token", "token_gap")

    def call(self, inputs: Any, sizes: Any = None) -> Any:
        token = inputs[:, self.index] if self.reads_token else None  # (B, D)
        if self.mode == "token":
            return token
        patches = inputs[:, self.prefix_tokens :]  # (B, N, D)
        if self.mode == "max":
            return ops.max(patches, axis=1)  # (B, D)
        if sizes is None:
            mean = ops.mean(patches, axis=1)  # (B, D)
        else:
            sizes = sizes[:, self.prefix_tokens :]  # (B, N)
            shares = sizes / ops.sum(sizes, axis=1, keepdims=True)
            mean = ops.sum(shares[..., None] * patches, axis=1)  # (B, D)
        return mean if token is None else ops.concatenate([token, mean], axis=1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, _, width = input_shape
        return (batch, 2 * width if self.mode == "token_gap" and width else width)


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(BaseLayer):
    """Attention pooling with one learned query, followed by an MLP.

    The multi-head attention pooling ("MAP") head of section 3.1 of "Scaling Vision
    Transformers": y = MHA(probe, z), then y + MLP(LN(y)).

    Args:
        num_heads: Number of attention heads.
        mlp_dim: Width of the hidden layer of the MLP.
        gelu: `"tanh"` or `"exact"`, see `MLP`.
        epsilon: Added to the variance in the layer norm.

    Call arguments:
        inputs: Tensor of shape (B, T, D).

    Returns:
        Tensor of shape (B, D).

    Raises:
        ValueError: If an argument is out of range or D is not a multiple of `num_heads`.

    Examples:
        >>> tuple(AttentionPooling(num_heads=2, mlp_dim=11)(np.ones((2, 5, 6), "float32")).shape)
        (2, 6)

    Reference: https://arxiv.org/abs/2106.04560
    """

    norm_class = LayerNorm  # a subclass may use a norm for other hardware

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        gelu: str = "tanh",
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.epsilon = arguments.positive("epsilon", epsilon)
        self.norm = self._sublayer(self.norm_class, epsilon=epsilon, name="norm")
        self.mlp = self._sublayer(MLP, mlp_dim, gelu=gelu, name="mlp")
        self.mlp_dim, self.gelu = self.mlp.mlp_dim, self.mlp.gelu
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        d_model = arguments.hidden_size(input_shape[-1], self.num_heads)
        probe_shape = (1, 1, d_model)
        self.probe = self.add_weight(name="probe", shape=probe_shape, initializer="glorot_uniform")
        self.query = self._sublayer(keras.layers.Dense, d_model, name="query")
        self.key_value = self._sublayer(keras.layers.Dense, 2 * d_model, name="key_value")
        self.out = self._sublayer(keras.layers.Dense, d_model, name="out")
        for layer in (self.query, self.out, self.norm, self.mlp):
            layer.build(probe_shape)
        self.key_value.build(input_shape)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], input_shape[2])

    def call(self, inputs: Any) -> Any:
        probe = ops.cast(ops.convert_to_tensor(self.probe), inputs.dtype)
        q = self._heads(self.query(probe))  # (1, K, 1, d)
        k, v = (self._heads(x) for x in ops.split(self.key_value(inputs), 2, axis=-1))
        y = ops.matmul(self.attention_weights(q, k), v)  # (B, K, 1, d)
        y = self.out(ops.reshape(y, (-1, 1, inputs.shape[-1])))  # (B, 1, D)
        return (y + self.mlp(self.norm(y)))[:, 0]  # (B, D)

    def attention_weights(self, q: Any, k: Any) -> Any:
        """Computes softmax(q k^T / sqrt(d)) of shape (B, K, 1, T); all images share one query."""
        return ops.softmax(ops.matmul(q * q.shape[-1] ** -0.5, ops.transpose(k, (0, 1, 3, 2))))

    def _heads(self, x: Any) -> Any:
        """Splits a tensor (B, T, D) into attention heads (B, K, T, d)."""
        t, d_model = ops.shape(x)[1], x.shape[-1]
        x = ops.reshape(x, (-1, t, self.num_heads, d_model // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))
