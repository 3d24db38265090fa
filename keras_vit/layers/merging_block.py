"""One block of the Transformer encoder, in which tokens that are alike become one.

Letters: B batch; T tokens, p prefix tokens in front of them, r fewer at the end; D hidden size; K
heads; d = D / K size of a head.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.matching import match, merge
from keras_vit.layers.reducing_block import ReducingBlock


class _ProportionalAttention(MultiHeadSelfAttention):
    """Attention to a token as if it were as many as it stands for; returns also the keys."""

    def call(
        self, inputs: Any, sizes: Any = None, num_tokens: Any = None, training: bool | None = None
    ) -> tuple[Any, Any]:
        q, k, v = self.project_in(inputs, num_tokens)  # (B, K, T, d)
        if sizes is None:
            weights = self.attention_weights(q, k)
        else:
            # s exp(x) = exp(x + log s): as many summands in the softmax.
            scores = self.attention_scores(q, k)
            counted = ops.cast(ops.log(sizes), scores.dtype)  # (B, T)
            weights = ops.softmax(scores + counted[:, None, None])  # (B, K, T, T)
        z = self.project_out(self.dropout(weights, training=training), v)  # (BT, D)
        return z, ops.mean(k, axis=1)  # (B, T, d)


@keras.saving.register_keras_serializable(package="keras_vit")
class MergingBlock(ReducingBlock):
    """A block in which tokens that are alike become one, their mean: token merging (ToMe).

    Between attention and perceptron the patches' tokens are put alternately into two sets; each of
    the first is paired with the one of the second whose key, averaged over the heads, has the
    highest cosine to its own, and the r best pairs are merged. A token remembers how many patches
    it stands for: the mean is weighted by that, and attention adds its logarithm to the scores,
    softmax(q k^T / sqrt(d) + log s). Merging equal tokens so changes nothing.

    Args:
        num_heads: As for `TransformerBlock`, like all that is not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens that go, at most half of the patches' tokens.
        prefix_tokens: Number p of tokens in front of the patches, which are never merged.

    Call arguments:
        inputs: Tensor of shape (B, T, D).
        sizes: How many patches each token stands for, (B, T); by default one.

    Returns:
        Tensor of shape (B, T - r, D) in the precision of the weights, and the sizes of its tokens,
        (B, T - r).

    Raises:
        ValueError: If an argument is out of range or the number of tokens is not known beforehand.

    Example:
        >>> block = MergingBlock(num_heads=2, mlp_dim=11, num_reduced=2)
        >>> z, sizes = block(np.ones((2, 6, 8), "float32"))
        >>> tuple(z.shape), float(ops.sum(sizes[0]))
        ((2, 4, 8), 6.0)

    Reference: https://arxiv.org/abs/2210.09461
    """

    attention_class = _ProportionalAttention

    def call(  # type: ignore[override]
        self, inputs: Any, sizes: Any = None, training: bool | None = None
    ) -> tuple[Any, Any]:
        _, t, d_model = inputs.shape
        left = self.left_of(t)
        z = self._in_one_matrix(inputs)  # (BT, D)
        branch, keys = self.attention(
            self.norm_1(z, training=training), sizes, num_tokens=t, training=training
        )
        z = self._add_attention(z, branch, t, training)
        if sizes is None:
            sizes = ops.ones(ops.shape(inputs)[:2], dtype=z.dtype)
        if left < t:
            # In half precision too many keys would be equally far.
            pairs = match(ops.cast(keys, z.dtype), t - left, self.prefix_tokens)
            z = ops.reshape(z, (-1, t, d_model))  # (B, T, D)
            z, sizes = merge(z, ops.cast(sizes, z.dtype), pairs)  # (B, T - r, D)
            z = ops.reshape(z, (-1, d_model))
        z = self._add_perceptron(z, left, training)
        return ops.reshape(z, (-1, left, d_model)), sizes

    def compute_output_spec(  # type: ignore[override]
        self, inputs: Any, sizes: Any = None, training: bool | None = None
    ) -> tuple[Any, Any]:
        batch, t, d_model = inputs.shape
        left = self.left_of(t)
        return (
            keras.KerasTensor((batch, left, d_model), dtype=self.variable_dtype),
            keras.KerasTensor((batch, left), dtype=self.variable_dtype),
        )

    def compute_output_shape(  # type: ignore[override]
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
        batch, t, d_model = input_shape
        left = self.left_of(t)
        return (batch, left, d_model), (batch, left)
