"""One block of the Transformer encoder, which drops what the class token attends to least.

Letters: B batch; T tokens, p prefix tokens in front of them, r fewer at the end; D hidden size; K
heads.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit.layers.matching import take_tokens
from keras_vit.layers.reducing_block import ReducingBlock


@keras.saving.register_keras_serializable(package="keras_vit")
class PruningBlock(ReducingBlock):
    """A block that drops the tokens that the class token attends to least.

    EViT, section 3.2: between attention and perceptron the patches' tokens are ranked by the class
    token's attention to them, the mean over the heads, and the r last are dropped. (The paper also
    tries to fuse them into one more token; this is the form without.)

    Args:
        num_heads: As for `TransformerBlock`, like all that is not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens that go, at most half of the patches' tokens.
        prefix_tokens: Number p of tokens in front of the patches, which are never dropped; the
            first is the class token.

    Call arguments:
        inputs: Tensor of shape (B, T, D).

    Returns:
        Tensor of shape (B, T - r, D) in the precision of the weights, the tokens in their order.

    Raises:
        ValueError: If an argument is out of range, there is no prefix token, or the number of
            tokens is not known beforehand.

    Example:
        >>> block = PruningBlock(num_heads=2, mlp_dim=11, num_reduced=2)
        >>> tuple(block(np.ones((2, 6, 8), "float32")).shape)
        (2, 4, 8)

    Reference: https://arxiv.org/abs/2202.07800
    """

    def __init__(self, num_heads: int, mlp_dim: int, **kwargs: Any) -> None:
        super().__init__(num_heads, mlp_dim, **kwargs)
        if not self.prefix_tokens:
            raise ValueError(
                "`prefix_tokens` must be at least 1, for the class token ranks the others. "
                "Received: prefix_tokens=0"
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        _, t, d_model = inputs.shape
        left = self.left_of(t)
        z = self._in_one_matrix(inputs)  # (BT, D)
        branch, scores = self.attention(
            self.norm_1(z, training=training),
            return_attention_scores=True,
            num_tokens=t,
            training=training,
        )
        z = self._add_attention(z, branch, t, training)
        if left < t:
            p = self.prefix_tokens
            z = ops.reshape(z, (-1, t, d_model))  # (B, T, D)
            attended = ops.mean(ops.cast(scores[:, :, 0, p:], z.dtype), axis=1)  # (B, T - p)
            _, best = ops.top_k(attended, left - p)
            z = ops.concatenate([z[:, :p], take_tokens(z[:, p:], ops.sort(best))], axis=1)
            z = ops.reshape(z, (-1, d_model))
        z = self._add_perceptron(z, left, training)
        return ops.reshape(z, (-1, left, d_model))  # (B, T - r, D)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.variable_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, t, d_model = input_shape
        return (batch, self.left_of(t), d_model)
