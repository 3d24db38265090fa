"""Windows of patches, in which attention is cheaper than among all patches.

Letters: B batch; h, w rows and columns of patches; s side of a window; n windows of an image; D
hidden size.
"""

from __future__ import annotations

from typing import Any

from keras import ops


def to_windows(patches: Any, side: int) -> Any:
    """Returns the patches (B, h, w, D) of square windows, (B * n, s * s, D).

    Zeros are added below and at the right if the sides are not multiples of `side`.

    Reference: `window_partition` of https://github.com/facebookresearch/detectron2, ViTDet
    """
    _, h, w, d = patches.shape
    rows, columns = -(-h // side), -(-w // side)
    patches = ops.pad(patches, ((0, 0), (0, rows * side - h), (0, columns * side - w), (0, 0)))
    tensor = ops.reshape(patches, (-1, side, columns, side * d))  # rank 4, as phones require
    tensor = ops.transpose(tensor, (0, 2, 1, 3))
    return ops.reshape(tensor, (-1, side * side, d))


def from_windows(windows: Any, grid: tuple[int, int], side: int) -> Any:
    """Returns the patches (B, h, w, D) of a `grid` (h, w), without the added zeros."""
    (h, w), d = grid, windows.shape[-1]
    rows, columns = -(-h // side), -(-w // side)
    tensor = ops.reshape(windows, (-1, columns, side, side * d))
    tensor = ops.transpose(tensor, (0, 2, 1, 3))
    return ops.reshape(tensor, (-1, rows * side, columns * side, d))[:, :h, :w]
