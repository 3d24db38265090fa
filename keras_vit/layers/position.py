"""Position tables: fixed sine-cosine values, and resizing a table to another grid.

Letters: h, w rows and columns of the grid of patches; D hidden size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from keras_vit import checks

RESIZE_METHODS = ("bilinear_aligned", "bicubic_antialiased")

# Cubic convolution coefficient of PIL and of antialiased resizing in PyTorch (Keys, 1981).
_CUBIC_A = -0.5


def sincos_2d(grid: tuple[int, int], hidden_size: int, temperature: float = 10_000.0) -> np.ndarray:
    """Returns the fixed two-dimensional sine-cosine position table.

    A quarter of the channels each holds sin and cos of the column, then sin and cos of the
    row, at geometrically spaced frequencies (the order of MoCo v3 and big_vision).

    Args:
        grid: Rows and columns of patches.
        hidden_size: Channels D, a multiple of 4.
        temperature: The longest wavelength, in patches, divided by 2 pi.

    Returns:
        float32 array of shape (h, w, D) with values in [-1, 1].

    Raises:
        ValueError: If `hidden_size` is not a multiple of 4.

    Example:
        >>> sincos_2d((5, 7), 12).shape
        (5, 7, 12)

    Reference: https://arxiv.org/abs/2104.02057, and `posemb_sincos_2d` of
    https://github.com/google-research/big_vision/blob/main/big_vision/models/vit.py
    """
    if hidden_size % 4:
        raise ValueError(
            "`hidden_size` must be a multiple of 4 for a sine-cosine position embedding. "
            f"Received: hidden_size={hidden_size}"
        )
    quarter = hidden_size // 4
    omega = temperature ** -(np.arange(quarter) / max(quarter - 1, 1))  # (D/4,)
    row, column = np.mgrid[: grid[0], : grid[1]]  # (h, w) each
    angles = (column[..., None] * omega, row[..., None] * omega)  # (h, w, D/4) each
    table = [function(angle) for angle in angles for function in (np.sin, np.cos)]
    return np.concatenate(table, axis=-1).astype("float32")  # (h, w, D)


def resize_table(table: Any, grid: tuple[Any, Any], method: str = "bilinear_aligned") -> Any:
    """Resizes a position table to another grid of patches.

    Args:
        table: Tensor of shape (h, w, D).
        grid: New rows and columns; integers, or scalar tensors where the size of the image is
            only known when the model runs.
        method: `"bilinear_aligned"` keeps the corner samples in place and interpolates
            linearly between (the official code: `scipy.ndimage.zoom` of order 1);
            `"bicubic_antialiased"` is timm's.

    Returns:
        Tensor of shape (new h, new w, D), float32.

    Raises:
        ValueError: If `method` is unknown.

    Example:
        >>> tuple(resize_table(np.zeros((14, 14, 12), "float32"), (24, 16)).shape)
        (24, 16, 12)

    Reference: `interpolate_posembed` of
    https://github.com/google-research/vision_transformer/blob/main/vit_jax/checkpoint.py
    """
    checks.one_of("method", method, RESIZE_METHODS)
    h, w, _ = table.shape
    rows = _resize_matrix(h, grid[0], method)  # (new h, h)
    columns = _resize_matrix(w, grid[1], method)  # (new w, w)
    table = ops.cast(table, "float32")
    table = ops.tensordot(rows, table, axes=1)  # (new h, w, D)
    table = ops.tensordot(columns, table, axes=[[1], [1]])  # (new w, new h, D)
    return ops.transpose(table, (1, 0, 2))  # (new h, new w, D)


def _resize_matrix(old: int, new: Any, method: str) -> Any:
    """Returns the (new, old) matrix whose rows weigh the old samples of each new one."""
    target = ops.cast(ops.arange(new), "float32")[:, None]  # (new, 1)
    source = np.arange(old, dtype="float32")[None]  # (1, old)
    size = ops.cast(new, "float32")
    if method == "bilinear_aligned":
        # One new sample sits on the first old one, as scipy's zoom puts it.
        position = target * (old - 1) / ops.maximum(size - 1, 1.0)
        return ops.relu(1 - ops.abs(source - position))
    scale = old / size
    position = (target + 0.5) * scale - 0.5
    # Shrinking widens the kernel, so that every old sample counts.
    weights = _cubic(ops.abs(source - position) / ops.maximum(scale, 1.0))
    return weights / ops.sum(weights, axis=1, keepdims=True)


def _cubic(t: Any) -> Any:
    """Keys' cubic convolution kernel at distances `t` >= 0, in samples."""
    a = _CUBIC_A
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return ops.where(t < 1, near, ops.where(t < 2, far, ops.zeros_like(t)))
