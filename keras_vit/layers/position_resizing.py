"""Resizing of position embeddings to another patch grid.

Letters: h, w rows and columns of the grid of patches; D hidden size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from keras_vit import arguments

# Interpolation methods of libraries, such as timm: coefficient of the cubic kernel (Keys, 1981), or
# None for a linear kernel; whether the corner samples stay in place, rather than the edges of the
# image; and whether the kernel is widened when the table shrinks. Samples beyond the edge are then
# excluded; otherwise they repeat the edge value.
_METHODS: dict[str, tuple[float | None, bool, bool]] = {
    "bilinear_aligned": (None, True, False),
    "bilinear": (None, False, False),
    "bicubic": (-0.75, False, False),
    "bicubic_aligned": (-0.75, True, False),
    "bicubic_antialiased": (-0.5, False, True),
}
RESIZE_METHODS = tuple(_METHODS)


def resize_table(table: Any, grid: tuple[Any, Any], method: str = "bilinear_aligned") -> Any:
    """Resizes position embeddings to another grid of patches.

    Reference: `interpolate_posembed` of
    https://github.com/google-research/vision_transformer/blob/main/vit_jax/checkpoint.py
    """
    arguments.one_of("method", method, RESIZE_METHODS)
    old_h, old_w, _ = table.shape
    rows = resize_matrix(old_h, grid[0], method)  # (new old_h, old_h)
    columns = resize_matrix(old_w, grid[1], method)  # (new old_w, old_w)
    table = ops.cast(table, "float32")
    table = ops.tensordot(rows, table, axes=1)  # (new old_h, old_w, D)
    table = ops.tensordot(columns, table, axes=[[1], [1]])  # (new old_w, new old_h, D)
    return ops.transpose(table, (1, 0, 2))  # (new old_h, new old_w, D)


def resize_matrix(old: int, new: Any, method: str) -> Any:
    """Returns the matrix that resizes position embeddings along one axis."""
    cubic, aligned, antialias = _METHODS[method]
    index = ops.cast(ops.arange(new), "float32")[:, None]  # (new, 1)
    new_size = ops.cast(new, "float32")
    if aligned:
        # A single new sample is at the first old sample, as in scipy's zoom.
        position = index * (old - 1) / ops.maximum(new_size - 1, 1.0)
    else:
        position = (index + 0.5) * (old / new_size) - 0.5
    if antialias:
        # The kernel widens when the table shrinks, so that every old sample contributes.
        distance = ops.abs(ops.arange(old, dtype="float32") - position)
        weights = _kernel(distance / ops.maximum(old / new_size, 1.0), cubic)
        return weights / ops.sum(weights, axis=1, keepdims=True)
    # A kernel extends two samples beyond each edge, where the edge value is repeated.
    padded_index = np.arange(-2, old + 2)
    distance = ops.abs(ops.convert_to_tensor(padded_index, dtype="float32") - position)
    weights = _kernel(distance, cubic)  # (new, old + 4)
    clipped_index = np.clip(padded_index, 0, old - 1)
    edge_repeat = np.eye(old, dtype="float32")[clipped_index]
    return ops.matmul(weights, ops.convert_to_tensor(edge_repeat))


def _kernel(t: Any, a: float | None) -> Any:
    """Evaluates the linear kernel, or the cubic kernel with coefficient `a`, at t >= 0."""
    if a is None:
        return ops.relu(1 - t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return ops.where(t < 1, near, ops.where(t < 2, far, ops.zeros_like(t)))


def offset_matrix(old: int, new: int) -> np.ndarray:
    """Returns the matrix (new, old) that interpolates values of offsets from -old/2 to old/2.

    The old offsets are stretched to the new range in a geometric progression: those near to zero,
    between neighboring patches, keep their values.

    Reference: `resize_rel_pos_bias_table` of
    https://github.com/huggingface/pytorch-image-models/blob/main/timm/layers/pos_embed_rel.py
    """
    if old == new:
        return np.eye(old)
    low, high, half = 1.01, 1.5, np.arange(old // 2)
    while high - low > 1e-6:
        ratio = (low + high) / 2
        if (ratio ** (old // 2) - 1) / (ratio - 1) > new // 2:
            high = ratio
        else:
            low = ratio
    positive = np.cumsum(ratio**half)
    stretched = np.concatenate([-positive[::-1], [0], positive])  # (old,)
    target = np.arange(new) - new // 2
    return np.stack([np.interp(target, stretched, unit) for unit in np.eye(old)], axis=1)
