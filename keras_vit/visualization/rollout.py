"""Attention followed through all blocks.

Letters: B batch; T tokens; K heads; L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rollout(attention: Sequence[np.ndarray]) -> np.ndarray:
    """Returns how much of each input token is in each token after every block.

    Attention rollout: heads averaged, the residual connection added as an identity, rows divided by
    their sums, multiplied from the first block up.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.

    Returns:
        Array (L, B, T, T); rows sum to 1.

    Example:
        >>> even = np.full((1, 2, 2, 2), 0.5)
        >>> rollout([even])[0, 0].tolist()
        [[0.75, 0.25], [0.25, 0.75]]

    Reference: https://arxiv.org/abs/2005.00928
    """
    steps: list[np.ndarray] = []
    for weights in attention:
        mixed = np.asarray(weights, np.float64).mean(axis=1) + np.eye(weights.shape[-1])
        mixed /= mixed.sum(axis=-1, keepdims=True)
        steps.append(mixed @ steps[-1] if steps else mixed)
    return np.stack(steps)


def gradient_rollout(
    attention: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
) -> np.ndarray:
    """Returns how much of each input token counts for a class in each token after the last block.

    Each head counts by what the class's score changes by with its attention: with A the attention
    and G its gradient, R = I, then R <- R + mean over heads of max(G * A, 0) R, from the first
    block up.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.
        gradients: Those of the class's score, of the same shapes.

    Returns:
        Array (B, T, T).

    Example:
        >>> even = np.full((1, 1, 2, 2), 0.5)
        >>> gradient_rollout([even], [np.array([[[[1.0, -1.0], [0.0, 0.0]]]])])[0].tolist()
        [[1.5, 0.0], [0.0, 1.0]]

    Reference: equations 5 and 6 of https://arxiv.org/abs/2103.15679 (self-attention)
    """
    batch, _, tokens, _ = np.shape(attention[0])
    relevance = np.tile(np.eye(tokens), (batch, 1, 1))
    for weights, gradient in zip(attention, gradients, strict=True):
        relevance = relevance + head_mean(weights, gradient) @ relevance
    return relevance


def head_mean(attention: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Returns the mean over heads of attention times gradient, where that is positive.

    Args:
        attention: Attention weights, (B, K, Q, T).
        gradients: Those of a class's score, of the same shape.

    Returns:
        Array (B, Q, T).

    Example:
        >>> head_mean(np.full((1, 1, 1, 2), 0.5), np.array([[[[2.0, -2.0]]]])).tolist()
        [[[1.0, 0.0]]]
    """
    return np.maximum(np.asarray(attention, np.float64) * gradients, 0).mean(axis=1)
