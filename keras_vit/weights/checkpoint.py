"""A checkpoint in this package's own names, whatever file it came from."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_vit.preprocessing import Preprocessing

# Architecture that a file and a model must share; everything else can be adapted.
ARCHITECTURE = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size", "channels")

POSITION = "patch_encoder/position"
ROW, COLUMN = "patch_encoder/row", "patch_encoder/column"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Tensors by the name of the variable that they belong to, and what they tell.

    Args:
        source: Where the tensors come from, for messages.
        tensors: Arrays by variable path, such as `"block_00/attention/qkv/kernel"`. The
            position table is (h, w, D), or (N, D) where the file does not tell its grid.
        traits: Fields of `ViTConfig` that the file determines: its architecture, and numerics
            such as the GELU variant and epsilon of its source.
        preprocessing: The preprocessing that the file carries, if it does.

    Example:
        >>> head = np.zeros((6, 5), "float32")
        >>> Checkpoint("example", {"head/kernel": head}, {"classes": 5}).traits["classes"]
        5
    """

    source: str
    tensors: dict[str, np.ndarray]
    traits: dict[str, Any]
    preprocessing: Preprocessing | None = None


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
        ['patch_encoder/class_token', 'patch_encoder/class_position']
    """
    return {variable.path: variable for variable in model.weights}


def traits_of(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns the configuration that shapes and names of a checkpoint's tensors determine.

    Args:
        tensors: Arrays by variable path.

    Returns:
        Fields of `ViTConfig`.

    Example:
        >>> traits_of({"head/kernel": np.zeros((6, 5))})["classes"]
        5
    """
    traits: dict[str, Any] = {
        "num_layers": len({name.split("/")[0] for name in tensors if name.startswith("block_")}),
        "class_token": "patch_encoder/class_token" in tensors,
        "classes": _columns(tensors, "head/kernel") or 0,
        "representation_size": _columns(tensors, "pre_logits/kernel"),
        "hidden_size": _columns(tensors, "patch_encoder/projection/kernel"),
        "mlp_dim": _columns(tensors, "block_00/mlp/expand/kernel"),
    }
    if "pooling/probe" in tensors:
        traits["pooling"] = "map"
    else:
        traits["pooling"] = "token" if traits["class_token"] else "gap"
    if POSITION in tensors:
        traits["position_embedding"] = "learned"
        traits["position_grid"] = grid_of(tensors[POSITION])
    elif ROW in tensors:
        traits["position_embedding"] = "learned_2d"
        traits["position_grid"] = (tensors[ROW].shape[0], tensors[COLUMN].shape[1])
    return traits


def grid_of(table: np.ndarray) -> tuple[int, int] | None:
    """Returns rows and columns of a position table.

    Args:
        table: Array of shape (h, w, D), or (N, D) from a file that does not tell the grid.

    Returns:
        The grid; for (N, D) the square one, or None where N is no square.

    Example:
        >>> grid_of(np.zeros((196, 6)))
        (14, 14)
    """
    if table.ndim == 3:
        return table.shape[0], table.shape[1]
    side = round(len(table) ** 0.5)
    return (side, side) if side * side == len(table) else None


def _columns(tensors: dict[str, np.ndarray], name: str) -> int | None:
    return tensors[name].shape[-1] if name in tensors else None
