"""Which tokens are alike enough to be one: bipartite soft matching, as pure functions.

Letters: B batch; N tokens, in the sets a (every other one, from the first) and b (the others); r
pairs; D values of a token.

Reference: section 3 of https://arxiv.org/abs/2210.09461
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class Matching:
    """Pairs of tokens, each of one in a and one in b; a token in b may be in several.

    Args:
        kept: Numbers in a of the tokens in no pair, ascending, (B, |a| - r).
        merged: Numbers in a of those in a pair, the most alike first, (B, r).
        partners: Their partners' numbers in b, (B, r).

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 2.0]]])
        >>> pairs = match(tokens, 1)  # 0 and 3 point most alike: the first in a, the second in b
        >>> [ops.convert_to_numpy(x).tolist() for x in (pairs.kept, pairs.merged, pairs.partners)]
        [[[1]], [[0]], [[1]]]
    """

    kept: Any
    merged: Any
    partners: Any


def match(metric: Any, pairs: int) -> Matching:
    """Finds the pairs with the most alike vectors: for each token in a its nearest in b.

    Args:
        metric: What is compared, by the cosine, (B, N, D).
        pairs: Number r of pairs, at most half of the tokens.

    Returns:
        The matching.

    Example:
        >>> match(ops.ones((2, 7, 3)), 2).kept.shape[1]
        2
    """
    metric = ops.normalize(metric)
    a, b = metric[:, ::2], metric[:, 1::2]
    likeness = ops.matmul(a, ops.transpose(b, (0, 2, 1)))  # (B, |a|, |b|)
    # Not `argmax`, in which Keras has an operator that TFLite lacks.
    best, nearest = ops.top_k(likeness, 1)  # (B, |a|, 1)
    _, order = ops.top_k(best[..., 0], a.shape[1])  # (B, |a|), descending
    merged = order[:, :pairs]
    partners = take_tokens(nearest, merged)[..., 0]  # (B, r)
    return Matching(ops.sort(order[:, pairs:]), merged, partners)


def sum_pairs(tokens: Any, matching: Matching) -> Any:
    """Adds to tokens in b their partners in a.

    Args:
        tokens: Tensor of shape (B, N, D).
        matching: What `match` returned.

    Returns:
        Tensor of shape (B, N - r, D): those kept of a, then b.

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0], [1.0], [2.0], [3.0]]])
        >>> pairs = Matching(*(ops.convert_to_tensor([[i]]) for i in (1, 0, 1)))
        >>> ops.convert_to_numpy(sum_pairs(tokens, pairs)).tolist()
        [[[2.0], [1.0], [3.0]]]
    """
    a, b = tokens[:, ::2], tokens[:, 1::2]
    # A product adds up partners without a scatter, whose order is left open on a GPU.
    into = ops.one_hot(matching.partners, b.shape[1], axis=1, dtype=b.dtype)  # (B, |b|, r)
    b = b + ops.matmul(into, take_tokens(a, matching.merged))
    return ops.concatenate([take_tokens(a, matching.kept), b], axis=1)


def take_tokens(tokens: Any, numbers: Any) -> Any:
    """Takes some of the tokens of each example.

    Args:
        tokens: Tensor of shape (B, N, D).
        numbers: Whole numbers in [0, N), (B, n).

    Returns:
        Tensor of shape (B, n, D).

    Example:
        >>> tokens = ops.convert_to_tensor([[[0.0], [1.0]], [[2.0], [3.0]]])
        >>> ops.convert_to_numpy(take_tokens(tokens, ops.convert_to_tensor([[1], [0]]))).tolist()
        [[[1.0]], [[2.0]]]
    """
    # Rows of one matrix: `take_along_axis` would look up every value by itself.
    batch, n, d = ops.shape(tokens)
    rows = numbers + n * ops.expand_dims(ops.arange(batch, dtype=numbers.dtype), -1)
    return ops.take(ops.reshape(tokens, (-1, d)), rows, axis=0)
