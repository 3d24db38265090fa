"""Kinds of position embeddings.

Letters: B batch; h, w rows and columns of the grid of patches; N = hw patches; p prefix tokens;
T = N + p tokens; D hidden size; K heads; d = D / K size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from keras import ops

from keras_vit.layers.position_resizing import offset_matrix, resize_table

Grid = tuple[int, int]
Sides = tuple[Any, Any]  # of a grid, tensors if known only at run time
Augmentation = tuple[Any, Any] | None  # of coordinates, see `Positions.attention_inputs`

_LARGEST_TABLE = 2**24  # half in ViT-G/14 at 980 pixels; a malicious file could have any size


class Positions:
    """Kind of position embedding. The base class adds nothing; a subclass overrides what it needs.

    A kind can add a table to the patch tokens (`shapes`, `table`). It can also act in the attention
    of every block: `attention_inputs` computes a tensor from the grid of patches, once for all
    blocks; each block rotates its queries and keys (`rotate`) or adds to its logits (`logits`).
    `POSITIONS[kind.name] = kind` makes a kind available as `position_embedding`.

    Examples:
        >>> Learned().shapes((3, 5), 8)
        {'position': (3, 5, 8)}
    """

    name: ClassVar[str] = "none"
    divisor: ClassVar[int] = 1  # the hidden size must be a multiple of it
    head_divisor: ClassVar[int] = 1  # the size of a head must be a multiple of it
    # Whether a table is added to the tokens of the patches.
    in_tokens: ClassVar[bool] = False
    # Whether the blocks receive the tensor of `attention_inputs`.
    in_attention: ClassVar[bool] = False
    # Whether the tensor of `attention_inputs` has one row per token, (1, T, ...), so that the rows
    # of selected tokens can be taken.
    per_token: ClassVar[bool] = True
    # Whether a model can have images of another size than that of the stored grid.
    any_grid: ClassVar[bool] = True

    def check(self, hidden_size: int, num_heads: int = 1) -> None:
        """Raises `ValueError` unless the kind supports the hidden size."""
        heads = num_heads if self.head_divisor > 1 else 1
        divisor = self.divisor * self.head_divisor * heads
        if hidden_size % divisor:
            raise ValueError(
                f"`hidden_size` must be a multiple of {divisor} for position_embedding="
                f"{self.name!r}. Received: hidden_size={hidden_size}, num_heads={num_heads}"
            )

    def shapes(self, grid: Grid, hidden_size: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the variables by name; if any, prefix tokens have positions."""
        return {}

    def table(self, variables: Mapping[str, Any], grid: Grid, hidden_size: int) -> Any | None:
        """Returns the values on the stored grid (h, w, D), or None if nothing is added."""
        return None

    def attention_shapes(self, grid: Grid, num_heads: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the variables in each block's attention by name."""
        return {}

    def attention_inputs(
        self, grid: Sides, num_prefix: int, head_size: int, augmentation: Augmentation = None
    ) -> Any:
        """Returns the tensor that all blocks receive, with 1 in place of the batch size.

        `augmentation` contains random shifts and scales, each of rows and of columns: in training a
        coordinate x becomes (x + shift) * scale, for kinds that have coordinates.
        """
        return None

    def rotate(self, x: Any, positions: Any) -> Any:
        """Returns the queries or keys (B, K, T, d), rotated by the tensor of `attention_inputs`."""
        return x

    def logits(self, variables: Mapping[str, Any], positions: Any) -> Any | None:
        """Returns values to add to the attention's logits (B, K, T, T), or None."""
        return None

    def resize(self, name: str, values: Any, grids: tuple[Grid, Grid], method: str) -> Any:
        """Returns the values of a variable, resized from the first grid to the second."""
        h, w, *_ = (self.shapes(grids[1], 1) | self.attention_shapes(grids[1], 1))[name]
        return resize_table(values, (h, w), method)


class Learned(Positions):
    """One learned vector for each patch."""

    name = "learned"
    in_tokens = True

    def shapes(self, grid: Grid, hidden_size: int) -> dict[str, tuple[int, ...]]:
        return {"position": (*grid, hidden_size)}

    def table(self, variables: Mapping[str, Any], grid: Grid, hidden_size: int) -> Any:
        return variables["position"]


class Learned2D(Positions):
    """Half of the channels learned for the row, and half for the column (appendix D.4)."""

    name = "learned_2d"
    in_tokens = True
    divisor = 2

    def shapes(self, grid: Grid, hidden_size: int) -> dict[str, tuple[int, ...]]:
        half = hidden_size // 2
        return {"row": (grid[0], 1, half), "column": (1, grid[1], half)}

    def table(self, variables: Mapping[str, Any], grid: Grid, hidden_size: int) -> Any:
        halves = variables["row"], variables["column"]
        shape = (*grid, hidden_size // 2)
        return ops.concatenate([ops.broadcast_to(half, shape) for half in halves], axis=-1)


class SinCos2D(Positions):
    """Fixed sines and cosines."""

    name = "sincos_2d"
    in_tokens = True
    divisor = 4

    def table(self, variables: Mapping[str, Any], grid: Grid, hidden_size: int) -> Any:
        return sincos_2d(grid, hidden_size)


class Rotary(Positions):
    """Rotation of queries and keys by angles of the row and the column (RoPE), as in DINOv3.

    The coordinates of the patches' centers are in [-1, 1] on any grid, so nothing is resized.

    Reference: https://arxiv.org/abs/2508.10104 and https://arxiv.org/abs/2104.09864
    """

    name = "rotary"
    head_divisor = 4
    in_attention = True

    def attention_inputs(
        self, grid: Sides, num_prefix: int, head_size: int, augmentation: Augmentation = None
    ) -> Any:
        angles = self.angles(grid, head_size // 4, augmentation)  # (h, w, 2, d/4)
        angles = ops.reshape(angles, (-1, head_size // 2))  # (N, d/2)
        # Prefix tokens have angles of zero: cosines of 1 and sines of 0.
        angles = self._pairs(ops.pad(angles, ((num_prefix, 0), (0, 0))))  # (T, d)
        return ops.concatenate([ops.cos(angles), ops.sin(angles)], axis=-1)[None]  # (1, T, 2d)

    def angles(self, grid: Sides, number: int, augmentation: Augmentation) -> Any:
        """Returns the angles (h, w, 2, number) of rows and columns at each frequency."""
        centers = [(_float_range(side) + 0.5) / ops.cast(side, "float32") * 2 - 1 for side in grid]
        if augmentation is not None:
            augmented = zip(centers, *augmentation, strict=True)
            centers = [(center + shift) * scale for center, shift, scale in augmented]
        frequencies = _constant(np.float32(100.0) ** (-np.arange(number, dtype="float32") / number))
        angles = [2 * math.pi * center[:, None] * frequencies for center in centers]
        return _on_grid(angles, grid)

    def rotate(self, x: Any, positions: Any) -> Any:
        cos, sin = ops.split(ops.cast(positions, x.dtype)[:, None], 2, axis=-1)  # (1, 1, T, d)
        size = x.shape[-1]
        first, second = self._channels(size)
        rotation = np.zeros((size, size), "float32")  # of each pair of channels by 90 degrees
        rotation[second, first], rotation[first, second] = -1, 1
        return x * cos + ops.matmul(x, ops.cast(_constant(rotation), x.dtype)) * sin

    def _pairs(self, angles: Any) -> Any:
        """Gives both channels of a pair, whose plane is rotated, the same angle."""
        return ops.tile(angles, (1, 2))

    def _channels(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of the first and of the second channel of each pair."""
        first = np.arange(size // 2)
        return first, first + size // 2


class LearnedRotary(Learned, Rotary):
    """One learned vector for each patch, and rotation of neighboring channels, as in EVA-02.

    The coordinates are those of a grid of 16 x 16 patches on any grid.

    Reference: https://arxiv.org/abs/2303.11331
    """

    name = "learned_rotary"

    def angles(self, grid: Sides, number: int, augmentation: Augmentation) -> Any:
        exponents = -np.arange(number, dtype="float32") / number
        frequencies = _constant(np.float32(10_000.0) ** exponents)
        coordinates = [_float_range(side) / ops.cast(side, "float32") * 16 for side in grid]
        return _on_grid([values[:, None] * frequencies for values in coordinates], grid)

    def _pairs(self, angles: Any) -> Any:
        return ops.repeat(angles, 2, axis=-1)

    def _channels(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(0, size, 2), np.arange(1, size, 2)


class Relative(Positions):
    """Learned logit for each offset between two patches, for each head of each block, as in BEiT.

    The last three rows of a table are for pairs of a prefix token and a patch, of a patch and a
    prefix token, and of two prefix tokens.

    Reference: https://arxiv.org/abs/2106.08254
    """

    name = "relative"
    in_attention = True
    per_token = False
    any_grid = False

    def attention_shapes(self, grid: Grid, num_heads: int) -> dict[str, tuple[int, ...]]:
        rows = (2 * grid[0] - 1) * (2 * grid[1] - 1) + 3  # + 3 for pairs with prefix tokens
        return {"relative_position": (rows, num_heads)}

    def attention_inputs(
        self, grid: Sides, num_prefix: int, head_size: int, augmentation: Augmentation = None
    ) -> Any:
        h, w = grid
        row, column = (x.ravel() for x in np.mgrid[:h, :w])  # (N,)
        offset = [x[:, None] - x + side - 1 for x, side in ((row, h), (column, w))]  # (N, N)
        p, last = num_prefix, (2 * h - 1) * (2 * w - 1) + 2
        index = np.pad(offset[0] * (2 * w - 1) + offset[1], ((p, 0), (p, 0)))
        index[:p], index[:, :p], index[:p, :p] = last - 2, last - 1, last
        return ops.convert_to_tensor(index[None], dtype="int32")  # (1, T, T)

    def logits(self, variables: Mapping[str, Any], positions: Any) -> Any:
        logits = ops.take(variables["relative_position"], positions[0], axis=0)  # (T, T, K)
        return ops.transpose(logits, (2, 0, 1))[None]

    def resize(self, name: str, values: Any, grids: tuple[Grid, Grid], method: str) -> np.ndarray:
        (h, w), (new_h, new_w) = ((2 * a - 1, 2 * b - 1) for a, b in grids)
        table = np.reshape(values[:-3], (h, w, -1))
        table = np.einsum("ah,bw,hwk->abk", offset_matrix(h, new_h), offset_matrix(w, new_w), table)
        return np.concatenate([table.reshape(new_h * new_w, -1), values[-3:]]).astype("float32")


POSITIONS = {
    kind.name: kind
    for kind in (
        *(Learned(), Learned2D(), SinCos2D(), Positions()),
        *(Rotary(), LearnedRotary(), Relative()),
    )
}


def _constant(values: np.ndarray) -> Any:
    # PyTorch's tensors cannot be combined with arrays.
    return ops.convert_to_tensor(values, dtype="float32")


def _float_range(length: Any) -> Any:
    return ops.cast(ops.arange(length), "float32")


def _on_grid(parts: list[Any], grid: Sides) -> Any:
    """Returns values (h, w, 2, n) from values of the rows (h, n) and of the columns (w, n)."""
    shape = (*grid, parts[0].shape[-1])
    row, column = parts[0][:, None], parts[1][None]
    return ops.stack([ops.broadcast_to(row, shape), ops.broadcast_to(column, shape)], axis=2)


def sincos_2d(grid: Grid, hidden_size: int, *, endpoint: bool = True) -> np.ndarray:
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
