"""Conversion of position embeddings between this package's and other libraries' layouts.

Letters: h, w rows and columns of the grid of patches; N = hw; p prefix tokens; T = N + p
positions; D hidden size. Another library's table has T rows, prefix tokens first, or only N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.layers import position_embedding as kinds
from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import Checkpoint, Tensors

POSITION = "patch_encoder/position"  # (h, w, D)
PREFIX_POSITION = "patch_encoder/prefix_position"  # (1, p, D)
REGISTERS = "patch_encoder/register_tokens"  # (1, G, D)
RELATIVE = "block_00/attention/relative_position"  # (N, K)
ROW, COLUMN = "patch_encoder/row", "patch_encoder/column"  # (h, 1, D/2), (1, w, D/2)
# Tables of other libraries: both tables in one, (T, D), or only that of the patches, (N, D).
POSITIONS = "patch_encoder/positions"
PATCH_POSITIONS = "patch_encoder/patch_positions"

_PREFIX_TOKENS = ("class_token", "distillation_token", "register_tokens")
# Sines and cosines differ in their last bits between processors.
_TOLERANCE = 1e-5


def prefix_numbers(tensors: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns the numbers of class, distillation and register tokens by field name."""
    tokens = {name: tensors.get(f"patch_encoder/{name}") for name in _PREFIX_TOKENS}
    return {name: 0 if tensor is None else tensor.shape[1] for name, tensor in tokens.items()}


def has_table(config: ViTConfig) -> bool:
    """Returns whether a model has one learned vector for each patch."""
    return "position" in kinds.POSITIONS[config.position_embedding].shapes((1, 1), 4)


def grid_of(number: int) -> tuple[int, int] | None:
    """Returns the square grid with this number of patches, or None if there is none."""
    side = round(max(number, 0) ** 0.5)
    return (side, side) if side and side * side == number else None


def position_traits(
    tensors: Mapping[str, np.ndarray], *, optional_prefix: bool = False
) -> dict[str, Any]:
    """Infers config fields from position embeddings, which may lack rows for prefix tokens."""
    p = _num_prefix(tensors)
    if RELATIVE in tensors:
        offsets = grid_of(len(tensors[RELATIVE]) - 3)
        grid = None if offsets is None else (offsets[0] // 2 + 1, offsets[1] // 2 + 1)
        return {"position_embedding": "relative", "position_grid": grid}
    if POSITION in tensors:
        config_fields = {"prefix_position": PREFIX_POSITION in tensors} if p else {}
        stored = tensors[POSITION].shape[:2]
        return {"position_embedding": "learned", "position_grid": stored, **config_fields}
    if ROW in tensors:
        stored = (tensors[ROW].shape[0], tensors[COLUMN].shape[1])
        return {"position_embedding": "learned_2d", "position_grid": stored}
    if PATCH_POSITIONS in tensors:
        has_prefix, num_patches = not p, len(tensors[PATCH_POSITIONS])
    elif POSITIONS in tensors:
        has_prefix, num_patches = True, len(tensors[POSITIONS]) - p
        if (
            optional_prefix and p
        ):  # ambiguous without an image size, unless exactly one layout is square
            layouts = _possible_layouts(len(tensors[POSITIONS]), p)
            has_prefix, num_patches = layouts.popitem() if len(layouts) == 1 else (True, 0)
    else:
        return {}
    learned = {"position_embedding": "learned", "position_grid": grid_of(num_patches)}
    return learned | {"prefix_position": has_prefix}


def has_prefix_rows(
    checkpoint: Checkpoint, grid: tuple[int, int], prefix_position: bool | None = None
) -> bool:
    """Returns whether the prefix tokens have position embeddings.

    A layout is possible if N is the model's number of patches, or a square number above 1. If both
    layouts are possible, the layout with the model's square grid is chosen.
    """
    p = _num_ambiguous_prefix(checkpoint)
    if not p:
        return checkpoint.inferred.get("prefix_position", True)
    length, num_patches = len(checkpoint.tensors[POSITIONS]), grid[0] * grid[1]
    layouts = _possible_layouts(length, p, num_patches)
    if prefix_position is not None and prefix_position in layouts:
        return prefix_position
    possible = list(layouts)
    if len(possible) == 2 and grid_of(num_patches):
        possible = [has for has, number in layouts.items() if number == num_patches] or possible
    if len(possible) == 1:
        return possible[0]
    choice = ", or pass to a constructor `overrides={'prefix_position': ...}`" if possible else ""
    raise ValueError(
        f"The position embedding of {checkpoint.source} must match exactly one layout. Received: "
        f"{length} rows for a model of {grid[0]} x {grid[1]} patches: either {p} rows of prefix "
        f"tokens and {length - p} rows of patches (prefix_position=True), or {length} rows of "
        "patches (prefix_position=False). Build the model at the image size that the file was "
        f"trained at{choice}."
    )


def infer_prefix_positions(checkpoint: Checkpoint, grid: tuple[int, int]) -> Checkpoint:
    """Determines from the original patch grid whether prefix tokens have position embeddings."""
    p = _num_ambiguous_prefix(checkpoint)
    return (_with_grid(checkpoint, grid, p) if p else None) or checkpoint


def split_for_image_size(checkpoint: Checkpoint, image_size: tuple[int, int]) -> Checkpoint:
    """Splits position embeddings, given the image size that determines the patch grid."""
    inferred, tensors = checkpoint.inferred, dict(checkpoint.tensors)
    if POSITIONS not in tensors or "patch_size" not in inferred:
        return checkpoint
    h, w = (side // patch for side, patch in zip(image_size, inferred["patch_size"], strict=True))
    p = sum(int(inferred.get(name, 0)) for name in _PREFIX_TOKENS)
    with_grid = _with_grid(checkpoint, (h, w), p)
    if with_grid is None:
        return checkpoint
    num_prefix_rows = p if with_grid.inferred["prefix_position"] else 0
    _split(tensors, tensors.pop(POSITIONS), (h, w), num_prefix_rows)
    file_names = checkpoint.names.get(POSITIONS, (POSITIONS,))
    names = {**checkpoint.names, POSITION: file_names, PREFIX_POSITION: file_names}
    inferred = with_grid.inferred | {"image_size": image_size}
    return with_grid.replace(tensors=tensors, inferred=inferred, names=names)


def split_positions(tensors: Tensors, checkpoint: Checkpoint, config: ViTConfig) -> None:
    """Splits position embeddings into prefix and patch parts, on a square grid by default."""
    patch_table = tensors.pop(PATCH_POSITIONS, None)
    table = tensors.pop(POSITIONS, patch_table)
    if table is None:
        return
    p = 0
    if patch_table is None and has_prefix_rows(checkpoint, config.grid, config.prefix_position):
        p = _num_prefix(tensors)  # of the file, not of the model
    n = len(table) - p
    # Unless the grid is known, a square number means a square grid: 24 x 24 patches, not 18 x 32.
    grids = (checkpoint.inferred.get("position_grid"), grid_of(n), config.grid)
    grid = next((grid for grid in grids if grid and grid[0] * grid[1] == n), None)
    if grid is None:
        raise ValueError(
            f"The position embedding of {checkpoint.source} has {n} positions, which match "
            f"neither the model's grid {config.grid} nor a square grid, so the position embedding "
            "cannot be resized. Build the model at the image size that the file was trained at."
        )
    _split(tensors, table, grid, p)


def try_split_positions(tensors: Tensors, config: ViTConfig) -> bool:
    """Splits position embeddings in place if they match the configuration; returns whether."""
    name = next((name for name in (POSITIONS, PATCH_POSITIONS) if name in tensors), None)
    h, w = config.grid
    learned = has_table(config)
    if name is not None:
        # A fixed table is saved with a row of zeros for each prefix token.
        has_prefix = name == POSITIONS and (config.prefix_position or not learned)
        p = config.num_prefix_tokens if has_prefix else 0
        if len(tensors[name]) != h * w + p or not (learned or _is_fixed(tensors[name], config)):
            return False
        table = tensors.pop(name)
        if learned:
            _split(tensors, table, (h, w), p)
    stored = tensors[POSITION].shape[:2] if POSITION in tensors else None
    return stored == ((h, w) if learned else None)


def join_positions(
    tensors: Mapping[str, np.ndarray], config: ViTConfig, *, optional_prefix: bool = True
) -> dict[str, np.ndarray]:
    """Joins all position embeddings in one tensor, as in other libraries' files."""
    tensors, name = dict(tensors), POSITIONS
    prefix = tensors.pop(PREFIX_POSITION, None)
    if config.position_embedding == "sincos_2d":
        table = kinds.sincos_2d(config.grid, config.hidden_size)
        prefix = np.zeros((1, config.num_prefix_tokens, config.hidden_size), "float32")
    elif POSITION in tensors:
        table = tensors.pop(POSITION)
        if config.num_prefix_tokens and not config.prefix_position and not optional_prefix:
            name = PATCH_POSITIONS
    else:
        return tensors
    table = table.reshape(-1, table.shape[-1])  # (N, D)
    tensors[name] = table if prefix is None else np.concatenate([prefix[0], table])
    return tensors


def insert_registers(tensors: Tensors) -> None:
    """Inserts zeros for the register tokens in a position table that has no rows for them."""
    num_registers = prefix_numbers(tensors)["register_tokens"]
    if POSITIONS in tensors and num_registers:
        start = _num_prefix(tensors) - num_registers
        tensors[POSITIONS] = np.insert(tensors[POSITIONS], [start] * num_registers, 0, axis=0)


def fold_registers(tensors: Mapping[str, np.ndarray], config: ViTConfig) -> Tensors:
    """Adds the positions of the register tokens to the tokens, and removes these positions."""
    tensors = dict(tensors)
    zeros = np.zeros((1, config.num_prefix_tokens, config.hidden_size), "float32")
    positions = tensors.get(PREFIX_POSITION, zeros)
    start = config.num_prefix_tokens - config.register_tokens
    tensors[PREFIX_POSITION] = positions[:, :start]
    if config.register_tokens:
        tensors[REGISTERS] = tensors[REGISTERS] + positions[:, start:]
    return tensors


def _num_prefix(tensors: Mapping[str, np.ndarray]) -> int:
    return sum(prefix_numbers(tensors).values())


def _num_ambiguous_prefix(checkpoint: Checkpoint) -> int:
    """Returns the number of prefix tokens if they may lack position embeddings, else 0."""
    is_ambiguous = checkpoint.optional_prefix and POSITIONS in checkpoint.tensors
    return _num_prefix(checkpoint.tensors) if is_ambiguous else 0


def _possible_layouts(length: int, p: int, num_patches: int | None = None) -> dict[bool, int]:
    """Returns the possible N, keyed by whether prefix tokens have embeddings."""
    both = {True: length - p, False: length}
    return {has: n for has, n in both.items() if n == num_patches or (n > 1 and grid_of(n))}


def _with_grid(checkpoint: Checkpoint, grid: tuple[int, int], p: int) -> Checkpoint | None:
    """Returns the checkpoint with this grid in `inferred`, or None if the table does not match."""
    num_prefix_rows = len(checkpoint.tensors[POSITIONS]) - grid[0] * grid[1]
    if num_prefix_rows not in (0, p):
        return None
    config_fields = {"position_grid": grid, "prefix_position": num_prefix_rows == p}
    return checkpoint.replace(inferred=checkpoint.inferred | config_fields, optional_prefix=False)


def _split(tensors: Tensors, table: np.ndarray, grid: tuple[int, int], p: int) -> None:
    """Splits position embeddings into prefix and patch variables."""
    tensors[POSITION] = table[p:].reshape(*grid, -1)  # (h, w, D)
    if p:
        tensors[PREFIX_POSITION] = table[None, :p]  # (1, p, D)


def _is_fixed(table: np.ndarray, config: ViTConfig) -> bool:
    if config.position_embedding != "sincos_2d":
        return False
    return np.allclose(table, join_positions({}, config)[POSITIONS], rtol=0, atol=_TOLERANCE)
