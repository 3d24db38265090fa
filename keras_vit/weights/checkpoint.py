"""A checkpoint in this package's own names, whatever file it came from.

Letters: h, w rows and columns of the grid of patches; N = hw; p prefix tokens; T = N + p
positions; D hidden size.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.layers.position import sincos_2d
from keras_vit.models import ViTConfig
from keras_vit.models.config import published_heads
from keras_vit.preprocessing import Preprocessing

# Architecture that a file and a model must share; everything else can be adapted.
ARCHITECTURE = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "stem_blocks", "stem_width")

POSITION = "patch_encoder/position"  # (h, w, D)
PREFIX_POSITION = "patch_encoder/prefix_position"  # (1, p, D)
ROW, COLUMN = "patch_encoder/row", "patch_encoder/column"  # (h, 1, D/2), (1, w, D/2)
# As files of others hold them: both tables in one, (T, D), or that of the patches alone, (N, D).
POSITIONS = "patch_encoder/positions"
PATCH_POSITIONS = "patch_encoder/patch_positions"

_STEM_UNIT = re.compile(r"stem/block(\d+)_unit(\d+)/conv1/kernel")
_PREFIX_TOKENS = ("class_token", "distillation_token", "register_tokens")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the tensors of a checkpoint stood in its file.

    Args:
        dialect: Name of the dialect of the file.
        names: Names in the file, by variable path; several where they were put together.
        left: Names of tensors that were left out deliberately.

    Example:
        >>> Origin("timm", {"head/bias": ("head.bias",)}).names["head/bias"]
        ('head.bias',)
    """

    dialect: str = "keras"
    names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    left: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Tensors by the name of the variable that they belong to, and what they tell.

    Args:
        source: Where the tensors come from, for messages.
        tensors: Arrays by variable path, such as `"block_00/attention/qkv/kernel"`. Positions
            are either those of our models, or one table (T, D) under `POSITIONS`.
        traits: Fields of `ViTConfig` that the file determines: its architecture, and numerics
            such as the GELU variant and epsilon of its source.
        preprocessing: The preprocessing that the file carries, if it does.
        origin: Names of the tensors in the file.
        loose_positions: Whether the table under `POSITIONS` may lack rows for the prefix tokens, so
            that `traits` hold the likelier reading: see `has_prefix_rows`.

    Example:
        >>> head = np.zeros((6, 5), "float32")
        >>> Checkpoint("example", {"head/kernel": head}, {"classes": 5}).traits["classes"]
        5
    """

    source: str
    tensors: dict[str, np.ndarray]
    traits: dict[str, Any]
    preprocessing: Preprocessing | None = None
    origin: Origin = dataclasses.field(default_factory=Origin)
    loose_positions: bool = False

    def replace(self, **changes: Any) -> Checkpoint:
        """Returns a copy with some fields changed.

        Args:
            **changes: Field names and their new values.

        Example:
            >>> Checkpoint("a", {}, {}).replace(source="b").source
            'b'
        """
        return dataclasses.replace(self, **changes)


def variables_of(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their path.

    Args:
        model: A model of this package.

    Returns:
        Variables by path, in the model's order.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> list(variables_of(model))[:2]
        ['patch_encoder/class_token', 'patch_encoder/prefix_position']
    """
    return {variable.path: variable for variable in model.weights}


def traits_of(
    tensors: Mapping[str, np.ndarray], *, loose_positions: bool = False
) -> dict[str, Any]:
    """Returns the configuration that shapes and names of a checkpoint's tensors determine.

    Args:
        tensors: Arrays by variable path.
        loose_positions: Whether a joint table may lack rows for the prefix tokens.

    Returns:
        Fields of `ViTConfig`.

    Example:
        >>> traits_of({"head/kernel": np.zeros((6, 5))})["classes"]
        5
    """
    numbers = _prefix_numbers(tensors)
    scale = tensors.get("block_00/scale_1/gamma")
    traits: dict[str, Any] = {
        "num_layers": len({name.split("/")[0] for name in tensors if name.startswith("block_")}),
        "class_token": bool(numbers["class_token"]),
        "distillation_token": bool(numbers["distillation_token"]),
        "distillation_head": "distillation_head/kernel" in tensors,
        "register_tokens": numbers["register_tokens"],
        "classes": _columns(tensors, "head/kernel") or 0,
        "representation_size": _columns(tensors, "pre_logits/kernel"),
        "hidden_size": _columns(tensors, "patch_encoder/projection/kernel"),
        "mlp_dim": _columns(tensors, "block_00/mlp/expand/kernel"),
        "pre_norm": "pre_norm/gamma" in tensors,
        "patch_bias": "patch_encoder/projection/bias" in tensors,
        "qkv_bias": "block_00/attention/qkv/bias" in tensors,
        # What it started from is not told; a trained one is overwritten anyway.
        "layer_scale": None if scale is None else 1e-5,
        **_stem_traits(tensors),
    }
    if "pooling/probe" in tensors:
        traits["pooling"] = "map"
    else:
        traits["pooling"] = "token" if traits["class_token"] else "gap"
    return traits | _position_traits(tensors, sum(numbers.values()), loose_positions)


def config_of(checkpoint: Checkpoint, **known: Any) -> ViTConfig:
    """Returns the configuration of the model that a checkpoint was saved from.

    Args:
        checkpoint: The checkpoint.
        **known: Fields of `ViTConfig` that the file does not tell, or that go before what it
            tells: the number of heads in a file of PyTorch, unless its sizes are published ones.

    Returns:
        The configuration; its classifier gives logits.

    Raises:
        ValueError: If something that is needed is neither told nor known.

    Example:
        >>> from keras_vit import models
        >>> config = ViTConfig(6, 1, 2, 11, patch_size=4, image_size=(8, 8), classes=5)
        >>> weights = variables_of(models.build(config))
        >>> tensors = {name: keras.ops.convert_to_numpy(v) for name, v in weights.items()}
        >>> checkpoint = Checkpoint("a", tensors, traits_of(tensors) | {"patch_size": (4, 4)})
        >>> config_of(checkpoint, num_heads=2).grid
        (2, 2)
    """
    fields = {field.name for field in dataclasses.fields(ViTConfig)}
    told = {name: value for name, value in checkpoint.traits.items() if name in fields}
    told |= {"classifier_activation": None} | known
    heads = published_heads(told["hidden_size"], told["num_layers"], told["mlp_dim"])
    told.setdefault("num_heads", heads)
    grid = told.pop("position_grid", None)
    missing = [name for name in ("num_heads", "patch_size") if told.get(name) is None]
    if "image_size" not in told and grid is None:
        missing.append("image_size")
    if missing:
        raise ValueError(
            f"{checkpoint.source} does not tell {', '.join(missing)}: give "
            f"{', '.join(f'{name}=...' for name in missing)}. "
            f"Received: {', '.join(sorted(known)) or 'nothing'}"
        )
    if "image_size" not in told:
        stride = ViTConfig(**told | {"image_size": (None, None)}).stride
        told["image_size"] = (grid[0] * stride[0], grid[1] * stride[1])
        return ViTConfig(**told)
    if None in told["image_size"]:
        told["position_grid"] = grid  # a model for any size resizes it inside
        return ViTConfig(**told)
    config = ViTConfig(**told)
    if "prefix_position" in known:
        return config
    return config.replace(prefix_position=has_prefix_rows(checkpoint, config.grid))


def num_prefix_tokens(tensors: Mapping[str, np.ndarray]) -> int:
    """Returns the number of tokens that a checkpoint's model has in front of the patches.

    Args:
        tensors: Arrays by variable path.

    Returns:
        The number p.

    Example:
        >>> num_prefix_tokens({"patch_encoder/class_token": np.zeros((1, 1, 6))})
        1
    """
    return sum(_prefix_numbers(tensors).values())


def grid_of(number: int) -> tuple[int, int] | None:
    """Returns the square grid with this number of patches.

    Args:
        number: Number N of patches.

    Returns:
        Rows and columns, or None where N is no square.

    Example:
        >>> grid_of(196)
        (14, 14)
    """
    side = round(max(number, 0) ** 0.5)
    return (side, side) if side and side * side == number else None


def has_prefix_rows(
    checkpoint: Checkpoint, grid: tuple[int, int], prefix_position: bool | None = None
) -> bool:
    """Tells whether a position table has rows for the prefix tokens.

    With N patches and p prefix tokens its length T may be N + p or N. A case is possible if N is
    the model's number of patches, or a square of more than one. If both are, the one that equals
    the model's own square grid is taken.

    Args:
        checkpoint: The checkpoint.
        grid: Rows and columns of the model.
        prefix_position: Whether the model has positions of prefix tokens; None if that is to be
            decided by the table. Taken if it is possible.

    Raises:
        ValueError: If both readings are possible, or none is.
    """
    p = num_prefix_tokens(checkpoint.tensors)
    if not checkpoint.loose_positions or POSITIONS not in checkpoint.tensors or not p:
        return checkpoint.traits.get("prefix_position", True)
    length, asked = len(checkpoint.tensors[POSITIONS]), grid[0] * grid[1]
    patches = {True: length - p, False: length}
    possible = [rows for rows, n in patches.items() if n == asked or (n > 1 and grid_of(n))]
    if prefix_position in possible:
        return prefix_position
    if len(possible) == 2 and grid_of(asked):
        possible = [rows for rows in possible if patches[rows] == asked] or possible
    if len(possible) == 1:
        return possible[0]
    choice = ", or give a constructor `overrides={'prefix_position': ...}`" if possible else ""
    raise ValueError(
        f"The position embedding of {checkpoint.source} must fit one layout. Received: {length} "
        f"rows for a model of {grid[0]} x {grid[1]} patches: either {p} of prefix tokens and "
        f"{length - p} of patches (prefix_position=True), or {length} of patches "
        "(prefix_position=False). Build the model at the image size that the file was trained at"
        f"{choice}."
    )


def settle_positions(checkpoint: Checkpoint, grid: tuple[int, int]) -> Checkpoint:
    """Decides from the checkpoint's own grid whether its position table has rows for prefix tokens.

    Args:
        checkpoint: The checkpoint.
        grid: Rows and columns of the model that it was saved from.
    """
    p, table = num_prefix_tokens(checkpoint.tensors), checkpoint.tensors.get(POSITIONS)
    if not checkpoint.loose_positions or table is None or not p:
        return checkpoint
    rows = len(table) - grid[0] * grid[1]
    if rows not in (0, p):
        return checkpoint
    told = {"position_grid": grid, "prefix_position": rows > 0}
    return checkpoint.replace(traits=checkpoint.traits | told, loose_positions=False)


def join_positions(tensors: Mapping[str, np.ndarray], config: ViTConfig) -> dict[str, np.ndarray]:
    """Returns the tensors with all positions in one table (T, D), as files of others hold them.

    Args:
        tensors: Arrays by variable path, of all variables of a model.
        config: The model's configuration. Fixed positions are written out; a class token has
            none of them, which is a row of zeros.

    Returns:
        New dictionary, with `POSITIONS` in place of our tables.

    Example:
        >>> from keras_vit import models
        >>> tensors = {POSITION: np.zeros((2, 3, 6)), PREFIX_POSITION: np.zeros((1, 1, 6))}
        >>> config = models.size("Micro/4").replace(image_size=(8, 12))
        >>> join_positions(tensors, config)[POSITIONS].shape
        (7, 6)
    """
    tensors = dict(tensors)
    prefix = tensors.pop(PREFIX_POSITION, None)
    if config.position_embedding == "sincos_2d":
        table = sincos_2d(config.grid, config.hidden_size)
        prefix = np.zeros((1, config.num_prefix_tokens, config.hidden_size), "float32")
    elif POSITION in tensors:
        table = tensors.pop(POSITION)
    else:
        return tensors
    table = table.reshape(-1, table.shape[-1])  # (N, D)
    tensors[POSITIONS] = table if prefix is None else np.concatenate([prefix[0], table])
    return tensors


def _prefix_numbers(tensors: Mapping[str, np.ndarray]) -> dict[str, int]:
    found = {name: tensors.get(f"patch_encoder/{name}") for name in _PREFIX_TOKENS}
    return {name: 0 if tensor is None else tensor.shape[1] for name, tensor in found.items()}


def _columns(tensors: Mapping[str, np.ndarray], name: str) -> int | None:
    return tensors[name].shape[-1] if name in tensors else None


def _stem_traits(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    width = _columns(tensors, "stem/conv_root/kernel")
    if width is None:
        return {"stem_blocks": None}
    units: dict[int, int] = {}
    for match in filter(None, map(_STEM_UNIT.fullmatch, tensors)):
        units[int(match[1])] = units.get(int(match[1]), 0) + 1
    return {"stem_blocks": tuple(units[stage] for stage in sorted(units)), "stem_width": width}


def _position_traits(tensors: Mapping[str, np.ndarray], prefix: int, loose: bool) -> dict[str, Any]:
    if POSITION in tensors:
        told = {"prefix_position": PREFIX_POSITION in tensors} if prefix else {}
        stored = tensors[POSITION].shape[:2]
        return {"position_embedding": "learned", "position_grid": stored, **told}
    if ROW in tensors:
        stored = (tensors[ROW].shape[0], tensors[COLUMN].shape[1])
        return {"position_embedding": "learned_2d", "position_grid": stored}
    if PATCH_POSITIONS in tensors:
        bare, length = bool(prefix), len(tensors[PATCH_POSITIONS])
    elif POSITIONS in tensors:
        length = len(tensors[POSITIONS])
        bare = False
        if loose and prefix:  # told by the size of images alone, unless one reading is square
            squares = [n for n in (length - prefix, length) if n > 1 and grid_of(n)]
            if len(squares) != 1:
                return {
                    "position_embedding": "learned",
                    "position_grid": None,
                    "prefix_position": True,
                }
            bare = squares == [length]
    else:
        return {}
    grid = grid_of(length if bare else length - prefix)
    return {"position_embedding": "learned", "position_grid": grid, "prefix_position": not bare}
