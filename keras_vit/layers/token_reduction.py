"""Transformer blocks that merge or prune tokens.

Letters: B batch; T tokens, the first p of them prefix tokens; r removed tokens; N = T - p patch
tokens, alternately in the sets a (the first, third, ...) and b (the second, fourth, ...); D hidden
size; K heads; d = D / K size of a head.

Reference: section 3 of https://arxiv.org/abs/2210.09461
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.transformer_block import TransformerBlock


class Matching(NamedTuple):
    """Pairs of tokens, one to be removed and the other to absorb it.

    Args:
        remaining: Indices in [0, T) of the remaining tokens, (B, T - r): the prefix tokens, the
            unpaired tokens of a, and b, each in ascending order.
        merged: Indices in [0, T) of the removed tokens of a, most similar first, (B, r).
        targets: Positions in `remaining` of the tokens that absorb `merged`, (B, r).

    Examples:
        >>> tokens = ops.convert_to_tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 4.0]]])
        >>> matching = match(tokens, 1)  # 0 and 3 have the highest cosine similarity
        >>> [ops.convert_to_numpy(indices).tolist() for indices in matching]
        [[[2, 1, 3]], [[0]], [[2]]]
    """

    remaining: Any
    merged: Any
    targets: Any


def match(metric: Any, pairs: int, prefix_tokens: int = 0) -> Matching:
    """Matches each token of set `a` to the most similar of set `b`; returns the best pairs."""
    t = metric.shape[1]
    in_a, in_b = (ops.arange(prefix_tokens + i, t, 2, dtype="int32") for i in (0, 1))
    metric = ops.normalize(metric)
    # `take` copies whole rows; a slice with a step copies value by value.
    a, b = ops.take(metric, in_a, axis=1), ops.take(metric, in_b, axis=1)
    similarity = ops.matmul(a, ops.transpose(b, (0, 2, 1)))  # (B, |a|, |b|)
    # Not `argmax`: Keras computes it with an operator that TFLite lacks.
    highest, nearest = ops.top_k(similarity, 1)  # (B, |a|, 1)
    _, order = ops.top_k(highest[..., 0], in_a.shape[0])  # (B, |a|), descending
    merged, unpaired = order[:, :pairs], ops.sort(order[:, pairs:])
    zeros = ops.zeros_like(order[:, :1])  # (B, 1), to broadcast over the examples
    remaining = [
        zeros + ops.arange(prefix_tokens, dtype="int32"),
        prefix_tokens + 2 * unpaired,
        zeros + in_b,
    ]
    targets = take_tokens(nearest, merged)[..., 0] + (prefix_tokens + in_a.shape[0] - pairs)
    return Matching(ops.concatenate(remaining, axis=1), prefix_tokens + 2 * merged, targets)


def merge(tokens: Any, sizes: Any, matching: Matching) -> tuple[Any, Any]:
    """Averages each remaining token with the tokens that are merged into it."""
    remaining, sizes = take_tokens(tokens, matching.remaining), sizes[..., None]
    merged_sizes = take_tokens(sizes, matching.merged)  # (B, r, 1)
    # Of shape (B, T - r, r): a matrix product sums tokens merged into the same one. A scatter would
    # add in an undefined order on a GPU.
    assignment = ops.one_hot(matching.targets, remaining.shape[1], axis=1, dtype=remaining.dtype)
    sizes = take_tokens(sizes, matching.remaining) + ops.matmul(assignment, merged_sizes)
    # The mean of x and the merged y_i of sizes s_i is x + sum of s_i / s (y_i - x).
    shares = merged_sizes / take_tokens(sizes, matching.targets)
    differences = take_tokens(tokens, matching.merged) - take_tokens(remaining, matching.targets)
    return remaining + ops.matmul(assignment, shares * differences), sizes[..., 0]


def take_tokens(tokens: Any, indices: Any) -> Any:
    """Returns the tokens of each example at the given indices."""
    tokens, indices = ops.convert_to_tensor(tokens), ops.convert_to_tensor(indices)
    if keras.backend.backend() != "tensorflow":
        # Indexes within an example, so that devices with parts of a batch need not communicate.
        return ops.take_along_axis(tokens, indices[:, :, None], axis=1)
    # Rows of one matrix: on TensorFlow `take_along_axis` looks up single values, which takes five
    # times as long.
    batch, t, d = ops.shape(tokens)
    rows = indices + t * ops.expand_dims(ops.arange(batch, dtype=indices.dtype), -1)
    return ops.take(ops.reshape(tokens, (-1, d)), rows, axis=0)


class ReducingBlock(TransformerBlock):
    """Transformer block that removes some patch tokens between the attention and the MLP.

    The weights are those of a `TransformerBlock`. The subclasses `MergingBlock` and
    `PruningBlock` select the tokens; at most half of the patch tokens are removed.

    Args:
        num_heads: As for `TransformerBlock`, like all arguments not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens to remove.
        prefix_tokens: Number p of tokens in front of the patches, which are never removed.

    Raises:
        ValueError: If an argument is out of range or the number of tokens is not static.

    Examples:
        >>> [ReducingBlock(2, 11, num_reduced=8).tokens_after(t) for t in (197, 12, 2)]
        [189, 7, 2]

    Reference: https://arxiv.org/abs/2210.09461
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        *,
        num_reduced: int = 8,
        prefix_tokens: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, mlp_dim, **kwargs)
        self.num_reduced = arguments.count("num_reduced", num_reduced)
        self.prefix_tokens = arguments.count("prefix_tokens", prefix_tokens)

    def tokens_after(self, num_tokens: int | None) -> int:
        """Returns the number of output tokens for a given number of input tokens.

        Args:
            num_tokens: Number of input tokens, including the prefix tokens.

        Returns:
            The number of output tokens, including the prefix tokens.

        Raises:
            ValueError: If the number of input tokens is unknown.

        Examples:
            >>> ReducingBlock(2, 11, num_reduced=3, prefix_tokens=2).tokens_after(6)
            4
        """
        if num_tokens is None:
            raise ValueError(
                "`inputs` must have a known number of tokens for token reduction; build the "
                "model with a fixed image size. Received: inputs of shape (B, None, D)"
            )
        return num_tokens - min(self.num_reduced, (num_tokens - self.prefix_tokens) // 2)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        batch, t, d_model = input_shape
        return (batch, self.tokens_after(t), d_model)

    def _compute_reduced(
        self, inputs: Any, sizes: Any, options: dict[str, Any], training: bool | None
    ) -> tuple[Any, Any]:
        """Returns the output tokens and their sizes, given options for calling attention."""
        _, t, d_model = inputs.shape
        new_length = self.tokens_after(t)
        z = self._as_matrix(inputs)  # (BT, D)
        branch, keys_or_scores = self.attention(
            self.norm_1(z, training=training), num_tokens=t, training=training, **options
        )
        z = self._add_attention(z, branch, t, training)
        if new_length < t:
            z = ops.reshape(z, (-1, t, d_model))  # (B, T, D)
            z, sizes = self._reduce(z, keys_or_scores, sizes, new_length)  # (B, T - r, D)
            z = ops.reshape(z, (-1, d_model))
        z = self._add_mlp(z, new_length, training)
        return ops.reshape(z, (-1, new_length, d_model)), sizes

    def _reduce(self, z: Any, keys_or_scores: Any, sizes: Any, new_length: int) -> tuple[Any, Any]:
        """Returns the remaining tokens and their sizes, given the second output of attention."""
        raise NotImplementedError


class _ProportionalAttention(MultiHeadSelfAttention):
    """Self-attention that weights tokens by size, and also returns the keys."""

    def call(  # type: ignore[override]
        self, inputs: Any, sizes: Any = None, num_tokens: Any = None, training: bool | None = None
    ) -> tuple[Any, Any]:
        q, k, v = self.project_in(inputs, num_tokens)  # (B, K, T, d)
        scores = self.attention_scores(q, k)  # (B, K, T, T)
        if sizes is not None:
            # s exp(x) = exp(x + log s): a token of size s counts s times in the softmax.
            scores = scores + ops.cast(ops.log(sizes), scores.dtype)[:, None, None]
        weights = self.dropout(ops.softmax(scores), training=training)
        z = self.project_out(ops.matmul(weights, v))  # (BT, D)
        return z, ops.mean(k, axis=1)  # (B, T, d)


@keras.saving.register_keras_serializable(package="keras_vit")
class MergingBlock(ReducingBlock):
    """Transformer block that merges similar tokens into their mean: token merging (ToMe).

    Between attention and MLP the patch tokens are divided alternately into two sets. Each token of
    the first set is paired with the token of the second set whose key, averaged over the heads,
    has the highest cosine similarity, and the r best pairs are merged. The size s of a token is
    its number of patches: the mean is weighted by s, and attention adds log s to the scores,
    softmax(q k^T / sqrt(d) + log s). So merging equal tokens does not change the output.

    Args:
        num_heads: As for `TransformerBlock`, like all arguments not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens to remove, at most half of the patch tokens.
        prefix_tokens: Number p of tokens in front of the patches, which are never merged.

    Call arguments:
        inputs: Tensor of shape (B, T, D).
        sizes: Number of patches in each token, (B, T); by default 1 for every token.

    Returns:
        Tensor of shape (B, T - r, D) in the dtype of the weights, and the sizes of its tokens,
        (B, T - r).

    Raises:
        ValueError: If an argument is out of range or the number of tokens is not static.

    Examples:
        >>> block = MergingBlock(num_heads=2, mlp_dim=11, num_reduced=2)
        >>> z, sizes = block(np.ones((2, 6, 8), "float32"))
        >>> tuple(z.shape), float(ops.sum(sizes[0]))
        ((2, 4, 8), 6.0)

    Reference: https://arxiv.org/abs/2210.09461
    """

    attention_class = _ProportionalAttention

    def call(self, inputs: Any, sizes: Any = None, training: bool | None = None) -> tuple[Any, Any]:
        initial = ops.ones(ops.shape(inputs)[:2], self.variable_dtype) if sizes is None else sizes
        return self._compute_reduced(inputs, initial, {"sizes": sizes}, training)

    def _reduce(self, z: Any, keys_or_scores: Any, sizes: Any, new_length: int) -> tuple[Any, Any]:
        keys = ops.cast(keys_or_scores, z.dtype)  # in half precision, too many would be equal
        matching = match(keys, z.shape[1] - new_length, self.prefix_tokens)
        return merge(z, ops.cast(sizes, z.dtype), matching)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        shape = super().compute_output_shape(input_shape)
        return shape, shape[:2]


@keras.saving.register_keras_serializable(package="keras_vit")
class PruningBlock(ReducingBlock):
    """Transformer block that drops the patch tokens to which the class token attends least.

    EViT, section 3.2: between attention and MLP the patch tokens are ranked by the class token's
    attention to them, averaged over the heads, and the r lowest are dropped. (The paper's variant
    that fuses the dropped tokens into one token is not implemented.)

    Args:
        num_heads: As for `TransformerBlock`, like all arguments not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens to remove, at most half of the patch tokens.
        prefix_tokens: Number p of tokens in front of the patches, which are never dropped; the
            first is the class token.

    Call arguments:
        inputs: Tensor of shape (B, T, D).

    Returns:
        Tensor of shape (B, T - r, D) in the dtype of the weights, the tokens in their order.

    Raises:
        ValueError: If an argument is out of range, there is no prefix token, or the number of
            tokens is not static.

    Examples:
        >>> block = PruningBlock(num_heads=2, mlp_dim=11, num_reduced=2)
        >>> tuple(block(np.ones((2, 6, 8), "float32")).shape)
        (2, 4, 8)

    Reference: https://arxiv.org/abs/2202.07800
    """

    def __init__(self, num_heads: int, mlp_dim: int, **kwargs: Any) -> None:
        super().__init__(num_heads, mlp_dim, **kwargs)
        if not self.prefix_tokens:
            raise ValueError(
                "`prefix_tokens` must be at least 1, because the class token ranks the other "
                "tokens. Received: prefix_tokens=0"
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:  # type: ignore[override]
        return self._compute_reduced(inputs, None, {"return_attention_scores": True}, training)[0]

    def _reduce(self, z: Any, keys_or_scores: Any, sizes: Any, new_length: int) -> tuple[Any, Any]:
        p = self.prefix_tokens
        class_scores = ops.cast(keys_or_scores[:, :, 0, p:], z.dtype)  # (B, K, T - p)
        _, highest = ops.top_k(ops.mean(class_scores, axis=1), new_length - p)
        patches = take_tokens(z[:, p:], ops.sort(highest))
        return ops.concatenate([z[:, :p], patches], axis=1), sizes
