"""Whether tensors and a configuration belong to the same model.

Letters: h, w rows and columns of the grid; N = hw; p prefix tokens; T = N + p positions; D hidden
size.
"""

from __future__ import annotations

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import (
    ARCHITECTURE,
    PATCH_POSITIONS,
    POSITION,
    POSITIONS,
    PREFIX_POSITION,
    Checkpoint,
    join_positions,
)

# What names and shapes decide. Grid and prefix of a table (T, D) are only guessed from them.
_DECIDED = (
    *ARCHITECTURE,
    *("patch_size", "channels", "classes", "representation_size", "norm_after_pooling"),
    *("class_token", "distillation_token", "distillation_head", "register_tokens"),
    *("pre_norm", "patch_bias", "qkv_bias"),
)
_PROJECTION = "patch_encoder/projection/kernel"
# Sines and cosines differ in their last bits from one processor to the next.
_TOLERANCE = 1e-5


def agreeing(checkpoint: Checkpoint, config: ViTConfig) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint as a model of this configuration holds them.

    Args:
        checkpoint: The checkpoint.
        config: The configuration of the model that it was saved from.

    Returns:
        Arrays by variable path: a table of all positions is split into those of the grid and
        of the prefix, and left out where the configuration computes it.

    Raises:
        ValueError: If the tensors are of another model.

    Example:
        >>> tensors = {"head/kernel": np.zeros((6, 5), "float32")}
        >>> config = ViTConfig(6, 1, 2, 11, patch_size=4, classes=7)
        >>> agreeing(Checkpoint("a.npz", tensors, {"classes": 5}), config)
        Traceback (most recent call last):
        ...
        ValueError: a.npz must agree with the configuration. Received: classes=5 for 7
    """
    traits, fields = checkpoint.traits, config.get_config()
    differing = [
        f"{name}={traits[name]} for {fields[name]}"
        for name in _DECIDED
        if name in traits and traits[name] != fields[name]
    ]
    if (traits.get("layer_scale") is None) != (config.layer_scale is None):
        differing.append(f"layer_scale={traits.get('layer_scale')} for {config.layer_scale}")
    kernel = checkpoint.tensors.get(_PROJECTION)
    inputs = config.patch[0] * config.patch[1] * config.channels
    if kernel is not None and config.stem_blocks is None and len(kernel) != inputs:
        differing.append(f"{len(kernel)} numbers in a patch for {inputs}")
    tensors = dict(checkpoint.tensors)
    if not differing and not _split_positions(tensors, config):
        shapes = [tensor.shape for name, tensor in tensors.items() if "/position" in name]
        grid = f"a grid of {config.grid} and position_embedding={config.position_embedding!r}"
        differing.append(f"positions of shape {', '.join(map(str, shapes)) or None} for {grid}")
    if differing:
        raise ValueError(
            f"{checkpoint.source} must agree with the configuration. "
            f"Received: {', '.join(differing)}"
        )
    return tensors


def _split_positions(tensors: dict[str, np.ndarray], config: ViTConfig) -> bool:
    """Splits a table of others in place; tells whether the positions are those of the model."""
    name = next((name for name in (POSITIONS, PATCH_POSITIONS) if name in tensors), None)
    h, w = config.grid
    learned = config.position_embedding == "learned"
    if name is not None:
        table = tensors[name]
        # A fixed table is written out with a row of zeros for each token of the prefix.
        rows = config.prefix_position or not learned
        p = config.num_prefix_tokens if rows and name == POSITIONS else 0
        if len(table) != h * w + p:
            return False
        if learned:
            tensors[POSITION] = table[p:].reshape(h, w, -1)  # (h, w, D)
            if p:
                tensors[PREFIX_POSITION] = table[None, :p]  # (1, p, D)
        elif config.position_embedding != "sincos_2d" or not np.allclose(
            table, join_positions({}, config)[POSITIONS], rtol=0, atol=_TOLERANCE
        ):
            return False
        del tensors[name]
    stored = tensors[POSITION].shape[:2] if POSITION in tensors else None
    return stored == ((h, w) if learned else None)
