"""Kinds of position embeddings, and their resizing to another patch grid.

Letters: h, w rows and columns of the grid of patches; D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from keras import ops

from keras_vit import arguments


class _Method(NamedTuple):
    """Interpolation method of a library, such as timm, for resizing position embeddings."""

    # Coefficient of the cubic kernel (Keys, 1981); None for a linear kernel.
    cubic: float | None = None
    # Whether the corner samples stay in place, rather than the edges of the image.
    aligned: bool = False
    # Whether the kernel is widened when the table shrinks. Samples beyond the edge are then
    # excluded; otherwise they repeat the edge value.
    antialias: bool = False


_METHODS = {
    "bilinear_aligned": _Method(aligned=True),
    "bilinear": _Method(),
    "bicubic": _Method(cubic=-0.75),
    "bicubic_aligned": _Method(cubic=-0.75, aligned=True),
    "bicubic_antialiased": _Method(cubic=-0.5, antialias=True),
}
RESIZE_METHODS = tuple(_METHODS)

_LARGEST_TABLE = 2**24  # half in ViT-G/14 at 980 pixels; a malicious file could have any size


class Positions:
    """Kind of positions: the values that it adds to the patch tokens. The base class adds none.

    Examples:
        >>> Learned().shapes((3, 5), 8)
        {'position': (3, 5, 8)}
    """

    name: ClassVar[str] = "none"
    divisor: ClassVar[int] = 1  # of the hidden size

    def check(self, hidden_size: int) -> None:
        """Raises `ValueError` unless the hidden size suits the kind."""
        if hidden_size % self.divisor:
            raise ValueError(
                f"`hidden_size` must be a multiple of {self.divisor} for position_embedding="
                f"{self.name!r}. Received: hidden_size={hidden_size}"
            )

    def shapes(self, grid: tuple[int, int], hidden_size: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the variables by name; prefix tokens have positions if any."""
        return {}

    def table(
        self, variables: Mapping[str, Any], grid: tuple[int, int], hidden_size: int
    ) -> Any | None:
        """Returns the values on the stored grid (h, w, D), or None if nothing is added."""
        return None


class Learned(Positions):
    """One learned vector for each patch."""

    name = "learned"

    def shapes(self, grid: tuple[int, int], hidden_size: int) -> dict[str, tuple[int, ...]]:
        return {"position": (*grid, hidden_size)}

    def table(self, variables: Mapping[str, Any], grid: tuple[int, int], hidden_size: int) -> Any:
        return variables["position"]


class Learned2D(Positions):
    """Half of the channels learned for the row, and half for the column (appendix D.4)."""

    name = "learned_2d"
    divisor = 2

    def shapes(self, grid: tuple[int, int], hidden_size: int) -> dict[str, tuple[int, ...]]:
        half = hidden_size // 2
        return {"row": (grid[0], 1, half), "column": (1, grid[1], half)}

    def table(self, variables: Mapping[str, Any], grid: tuple[int, int], hidden_size: int) -> Any:
        halves = variables["row"], variables["column"]
        shape = (*grid, hidden_size // 2)
        return ops.concatenate([ops.broadcast_to(half, shape) for half in halves], axis=-1)


class SinCos2D(Positions):
    """Fixed sines and cosines."""

    name = "sincos_2d"
    divisor = 4

    def table(self, variables: Mapping[str, Any], grid: tuple[int, int], hidden_size: int) -> Any:
        return sincos_2d(grid, hidden_size)


POSITIONS = {kind.name: kind for kind in (Learned(), Learned2D(), SinCos2D(), Positions())}


def sincos_2d(grid: tuple[int, int], hidden_size: int, *, endpoint: bool = True) -> np.ndarray:
    """Returns fixed two-dimensional sine-cosine position embeddings.

    The four quarters of the channels are sin and cos of the column, then sin and cos of the
    row, at geometrically spaced frequencies (the order of MoCo v3 and big_vision).

    Reference: https://arxiv.org/abs/2104.02057, and `posemb_sincos_2d` of
    https://github.com/google-research/big_vision/blob/main/big_vision/models/vit.py
    """
    SinCos2D().check(hidden_size)
    quarter = hidden_size // 4
    if grid[0] * grid[1] * hidden_size > _LARGEST_TABLE:
        raise ValueError(
            f"`grid` must be small enough for a table of at most {_LARGEST_TABLE:,} values (rows "
            f"x columns x hidden_size). Received: grid={grid}, hidden_size={hidden_size}"
        )
    omega = 10_000.0 ** -(np.arange(quarter) / max(quarter - endpoint, 1))  # (D/4,)
    row, column = np.mgrid[: grid[0], : grid[1]]  # (h, w) each
    angles = (column[..., None] * omega, row[..., None] * omega)  # (h, w, D/4) each
    table = [function(angle) for angle in angles for function in (np.sin, np.cos)]
    return np.concatenate(table, axis=-1).astype("float32")  # (h, w, D)


def resize_table(table: Any, grid: tuple[Any, Any], method: str = "bilinear_aligned") -> Any:
    """Resizes position embeddings to another grid of patches.

    Reference: `interpolate_posembed` of
    https://github.com/google-research/vision_transformer/blob/main/vit_jax/checkpoint.py
    """
    arguments.one_of("method", method, RESIZE_METHODS)
    h, w, _ = table.shape
    rows = resize_matrix(h, grid[0], method)  # (new h, h)
    columns = resize_matrix(w, grid[1], method)  # (new w, w)
    table = ops.cast(table, "float32")
    table = ops.tensordot(rows, table, axes=1)  # (new h, w, D)
    table = ops.tensordot(columns, table, axes=[[1], [1]])  # (new w, new h, D)
    return ops.transpose(table, (1, 0, 2))  # (new h, new w, D)


def resize_matrix(old: int, new: Any, method: str) -> Any:
    """Returns the matrix that resizes position embeddings along one axis."""
    cubic, aligned, antialias = _METHODS[method]
    target = ops.cast(ops.arange(new), "float32")[:, None]  # (new, 1)
    size = ops.cast(new, "float32")
    if aligned:
        # A single new sample is at the first old sample, as in scipy's zoom.
        position = target * (old - 1) / ops.maximum(size - 1, 1.0)
    else:
        position = (target + 0.5) * (old / size) - 0.5
    if antialias:
        # The kernel widens when the table shrinks, so that every old sample contributes.
        distance = ops.abs(np.arange(old, dtype="float32") - position)
        weights = _kernel(distance / ops.maximum(old / size, 1.0), cubic)
        return weights / ops.sum(weights, axis=1, keepdims=True)
    # A kernel extends two samples beyond each edge, where the edge value is repeated.
    reach = np.arange(-2, old + 2)
    weights = _kernel(ops.abs(reach.astype("float32") - position), cubic)  # (new, old + 4)
    nearest = np.clip(reach, 0, old - 1)
    return ops.matmul(weights, np.eye(old, dtype="float32")[nearest])


def _kernel(t: Any, a: float | None) -> Any:
    """Evaluates the linear kernel, or the cubic kernel with coefficient `a`, at t >= 0."""
    if a is None:
        return ops.relu(1 - t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return ops.where(t < 1, near, ops.where(t < 2, far, ops.zeros_like(t)))
