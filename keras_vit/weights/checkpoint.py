"""In-memory representation of a checkpoint, with this package's variable names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.preprocessing import Preprocessing

Tensors = dict[str, np.ndarray]

PROJECTION, ROOT = "patch_encoder/projection/kernel", "stem/conv_root/kernel"

# Architecture fields that must be equal in file and model; all other fields can be adapted.
ARCHITECTURE = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "stem_blocks", "stem_width")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights by variable path, with the model configuration inferred from the file.

    Args:
        source: Source of the tensors, for messages.
        tensors: Arrays by variable path, for example `"block_00/attention/qkv/kernel"`. Position
            tables are those of this package, or one table (T, D) under `POSITIONS`.
        inferred: Fields of `ViTConfig` that the file determines: the architecture, and numerics
            of its source, for example the GELU variant and epsilon.
        preprocessing: Preprocessing stored in the file, or None.
        dialect: Name of the `Dialect` that the file follows.
        names: Tensor names in the file by variable path; several names for concatenated tensors.
        ignored: Names of tensors in the file that are ignored deliberately.
        optional_prefix: Whether the table under `POSITIONS` may lack rows for the prefix tokens.
            `inferred` then contains the more likely layout, see `has_prefix_rows`.
        notes: Sentences on what was ignored or assumed when the file was read, by topic.
    """

    source: str
    tensors: Tensors
    inferred: dict[str, Any]
    preprocessing: Preprocessing | None = None
    dialect: str = "keras"
    names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    optional_prefix: bool = False
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def replace(self, **changes: Any) -> Checkpoint:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


def variables_of(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns a model's variables as a dictionary keyed by path."""
    return {variable.path: variable for variable in model.weights}
