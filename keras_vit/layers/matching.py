"""Which tokens are alike enough to be one: bipartite soft matching, as pure functions.

Letters: B batch; T tokens, p prefix tokens in front of them; N = T - p tokens of patches, in the
sets a (every other one, from the first) and b (the others); r pairs; D values of a token.

Reference: section 3 of https://arxiv.org/abs/2210.09461
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True)
class Matching:
    """Pairs of tokens: one of each goes, into the other, which may be in several pairs.

    Args:
        left: Numbers in [0, T) of the tokens that stay: the prefix tokens, those of a that are in
            no pair, and b, each ascending, (B, T - r).
        merged: Numbers in [0, T) of the tokens of a that go, the most alike first, (B, r).
        into: Their partners' places in `left`, (B, r).

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 4.0]]])
        >>> pairs = match(tokens, 1)  # 0 and 3 point most alike
        >>> [ops.convert_to_numpy(x).tolist() for x in (pairs.left, pairs.merged, pairs.into)]
        [[[2, 1, 3]], [[0]], [[2]]]
    """

    left: Any
    merged: Any
    into: Any


def match(metric: Any, pairs: int, prefix_tokens: int = 0) -> Matching:
    """Finds the pairs with the most alike vectors: for each token in a its nearest in b.

    Args:
        metric: What is compared, by the cosine, (B, T, D).
        pairs: Number r of pairs, at most half of the patches' tokens.
        prefix_tokens: Number p of tokens in front, which are in no pair.

    Returns:
        The matching.

    Example:
        >>> tuple(match(ops.ones((2, 7, 3)), pairs=2).left.shape)
        (2, 5)
    """
    t = metric.shape[1]
    in_a, in_b = (np.arange(prefix_tokens + i, t, 2, dtype="int32") for i in (0, 1))
    metric = ops.normalize(metric)
    # `take` copies whole rows, where a slice with a step goes through them value by value.
    a, b = ops.take(metric, in_a, axis=1), ops.take(metric, in_b, axis=1)
    likeness = ops.matmul(a, ops.transpose(b, (0, 2, 1)))  # (B, |a|, |b|)
    # Not `argmax`, in which Keras has an operator that TFLite lacks.
    best, nearest = ops.top_k(likeness, 1)  # (B, |a|, 1)
    _, order = ops.top_k(best[..., 0], len(in_a))  # (B, |a|), descending
    merged, kept = order[:, :pairs], ops.sort(order[:, pairs:])
    always = ops.zeros_like(order[:, :1])  # (B, 1), to repeat what is the same in each example
    left = [
        always + np.arange(prefix_tokens, dtype="int32"),
        prefix_tokens + 2 * kept,
        always + in_b,
    ]
    into = take_tokens(nearest, merged)[..., 0] + (prefix_tokens + len(in_a) - pairs)
    return Matching(ops.concatenate(left, axis=1), prefix_tokens + 2 * merged, into)


def merge(tokens: Any, sizes: Any, matching: Matching) -> tuple[Any, Any]:
    """Moves tokens to the mean of themselves and what is merged into them.

    Args:
        tokens: Tensor of shape (B, T, D).
        sizes: How much each counts in a mean, (B, T).
        matching: What `match` returned.

    Returns:
        The tokens that are left, (B, T - r, D), and their sizes, (B, T - r).

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0], [1.0], [4.0]]])
        >>> sizes = ops.convert_to_tensor([[2.0, 1.0, 1.0]])
        >>> pairs = Matching(*map(ops.convert_to_tensor, ([[1, 2]], [[0]], [[1]])))
        >>> [ops.convert_to_numpy(x).tolist() for x in merge(tokens, sizes, pairs)]
        [[[[1.0], [1.3333...]]], [[1.0, 3.0]]]
    """
    left, sizes = take_tokens(tokens, matching.left), sizes[..., None]
    moved = take_tokens(sizes, matching.merged)  # (B, r, 1)
    # A product adds up where several have one partner, without a scatter, whose order a GPU
    # leaves open.
    onto = ops.one_hot(matching.into, left.shape[1], axis=1, dtype=left.dtype)  # (B, T - r, r)
    sizes = take_tokens(sizes, matching.left) + ops.matmul(onto, moved)  # (B, T - r, 1)
    # The mean of x with what joins it, y_i of size s_i, is x + sum of s_i / s (y_i - x).
    shares = moved / take_tokens(sizes, matching.into)
    steps = take_tokens(tokens, matching.merged) - take_tokens(left, matching.into)  # (B, r, D)
    return left + ops.matmul(onto, shares * steps), sizes[..., 0]


def take_tokens(tokens: Any, numbers: Any) -> Any:
    """Takes some of the tokens of each example.

    Args:
        tokens: Tensor of shape (B, T, D).
        numbers: Whole numbers in [0, T), (B, n).

    Returns:
        Tensor of shape (B, n, D).

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0], [1.0]], [[2.0], [3.0]]])
        >>> ops.convert_to_numpy(take_tokens(tokens, ops.convert_to_tensor([[1], [0]]))).tolist()
        [[[1.0]], [[2.0]]]
    """
    # Rows of one matrix: `take_along_axis` would look up every value by itself.
    batch, t, d = ops.shape(tokens)
    rows = numbers + t * ops.expand_dims(ops.arange(batch, dtype=numbers.dtype), -1)
    return ops.take(ops.reshape(tokens, (-1, d)), rows, axis=0)
