"""How far each head looks.

Letters: B batch; h, w rows and columns of patches; N = hw patches; T tokens; K heads; L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_attention_distance(
    attention: Sequence[np.ndarray], grid: tuple[int, int], patch_size: tuple[int, int]
) -> np.ndarray:
    """Returns the mean distance between a patch and the patches it attends to.

    The distance of two patches is that of their centres in the image; it is weighted with the
    attention and averaged over the patches that look. Class, distillation and register tokens
    are left out, on both sides and without raising the rest to a sum of 1. What a receptive field
    is in a convolution, this is in self-attention.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T), rows of queries.
        grid: Rows and columns h, w of patches, which are the last hw tokens.
        patch_size: Height and width of a patch in pixels (`Anatomy.patch_stride`).

    Returns:
        Pixels, (L, B, K).

    Raises:
        ValueError: If there are fewer tokens than patches.

    Example:
        >>> looks_at_itself = np.eye(6).reshape(1, 1, 6, 6)
        >>> mean_attention_distance([looks_at_itself], (2, 3), (16, 16))
        array([[[0.]]])

    Reference: Figures 7 (right) and 11 of https://arxiv.org/abs/2010.11929, which do not define it
    further; as in https://github.com/sayakpaul/probing-vits
    """
    num_patches = check_tokens(attention, grid)
    rows, columns = np.divmod(np.arange(num_patches), grid[1])
    down = (rows[:, None] - rows) * patch_size[0]
    across = (columns[:, None] - columns) * patch_size[1]
    distances = np.hypot(down, across)  # (N, N)
    return np.stack(
        [
            (np.asarray(a, np.float64)[..., -num_patches:, -num_patches:] * distances)
            .sum(axis=-1)
            .mean(axis=-1)
            for a in attention
        ]
    )


def check_tokens(attention: Sequence[np.ndarray], grid: tuple[int, int]) -> int:
    """Returns the number of patches after checking that there are tokens for them.

    Args:
        attention: Attention weights of each block, L arrays (B, K, T, T).
        grid: Rows and columns of patches.

    Returns:
        N.

    Raises:
        ValueError: If there is no block, or fewer tokens than patches.

    Example:
        >>> check_tokens([np.ones((1, 1, 7, 7)) / 7], (2, 3))
        6
    """
    num_patches = grid[0] * grid[1]
    if not len(attention) or np.shape(attention[0])[-1] < num_patches:
        shapes = [np.shape(a) for a in attention]
        raise ValueError(
            f"`attention` must have a token for each of the {grid[0]} x {grid[1]} patches, for one "
            f"block or more. Received: arrays of the shapes {shapes}"
        )
    return num_patches
