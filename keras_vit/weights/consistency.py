"""Consistency check of a checkpoint's tensors against a model configuration."""

from __future__ import annotations

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import ARCHITECTURE, PROJECTION, Checkpoint
from keras_vit.weights.positions import split_as_configured

# Fields that names and shapes determine. Grid and prefix of a table (T, D) are only guessed.
_DECIDED = (
    *ARCHITECTURE,
    *("patch_size", "channels", "classes", "representation_size", "norm_after_pooling"),
    *("class_token", "distillation_token", "distillation_head", "register_tokens"),
    *("pre_norm", "patch_bias", "qkv_bias"),
)


def check_consistency(checkpoint: Checkpoint, config: ViTConfig) -> dict[str, np.ndarray]:
    """Checks a checkpoint against a configuration; also splits combined position embeddings."""
    inferred, fields = checkpoint.inferred, config.get_config()
    wrong = [name for name in _DECIDED if name in inferred and inferred[name] != fields[name]]
    differing = [f"{name}={inferred[name]} instead of {fields[name]}" for name in wrong]
    if (inferred.get("layer_scale") is None) != (config.layer_scale is None):
        differing.append(f"layer_scale={inferred.get('layer_scale')}, not {config.layer_scale}")
    kernel = checkpoint.tensors.get(PROJECTION)
    inputs = config.patch[0] * config.patch[1] * config.channels
    if kernel is not None and config.stem_blocks is None and len(kernel) != inputs:
        differing.append(f"{len(kernel)} values per patch instead of {inputs}")
    tensors = dict(checkpoint.tensors)
    if not differing and not split_as_configured(tensors, config):
        shapes = [tensor.shape for name, tensor in tensors.items() if "/position" in name]
        grid = f"a grid of {config.grid} and position_embedding={config.position_embedding!r}"
        differing.append(f"positions of shape {', '.join(map(str, shapes)) or None} for {grid}")
    if differing:
        raise ValueError(
            f"{checkpoint.source} must match its configuration. Received: {', '.join(differing)}"
        )
    return tensors
