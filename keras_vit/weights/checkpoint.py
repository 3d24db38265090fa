"""A checkpoint in this package's own names, whatever file it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.preprocessing import Preprocessing

Tensors = dict[str, np.ndarray]

# Architecture that a file and a model must share; everything else can be adapted.
ARCHITECTURE = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "stem_blocks", "stem_width")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the tensors of a checkpoint stood in its file.

    Args:
        dialect: Name of the dialect of the file.
        names: Names in the file, by variable path; several where they were put together.
        left: Names of tensors that were left out deliberately.
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
        inferred: Fields of `ViTConfig` that the file determines: its architecture, and numerics
            such as the GELU variant and epsilon of its source.
        preprocessing: The preprocessing that the file carries, if it does.
        origin: Names of the tensors in the file.
        loose_positions: Whether the table under `POSITIONS` may lack rows for the prefix tokens, so
            that `inferred` hold the likelier reading: see `has_prefix_rows`.
    """

    source: str
    tensors: Tensors
    inferred: dict[str, Any]
    preprocessing: Preprocessing | None = None
    origin: Origin = dataclasses.field(default_factory=Origin)
    loose_positions: bool = False

    def replace(self, **changes: Any) -> Checkpoint:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


def variables_of(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their path."""
    return {variable.path: variable for variable in model.weights}
