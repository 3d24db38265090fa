"""Derivation of a model configuration from a checkpoint's tensors, and comparison with one."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.models.config import published_heads
from keras_vit.weights import positions
from keras_vit.weights.checkpoint import ARCHITECTURE, PROJECTION, ROOT, Checkpoint

_MLP = "block_00/mlp"
_STEM_UNIT = re.compile(r"stem/block(\d+)_unit(\d+)/conv1/kernel")
# Fields that names and shapes determine; grid and prefix of a table (T, D) are ambiguous.
_DETERMINED = (
    *ARCHITECTURE,
    *("patch_size", "channels", "classes", "representation_size", "norm_after_pooling"),
    *("class_token", "distillation_token", "distillation_head", "register_tokens"),
    *("pre_norm", "patch_bias", "qkv_bias"),
)


def infer_fields(
    tensors: Mapping[str, np.ndarray], *, optional_prefix: bool = False
) -> dict[str, Any]:
    """Returns the `ViTConfig` fields determined by the names and shapes of tensors."""
    num_tokens = positions.prefix_numbers(tensors)
    pooling = "token" if num_tokens["class_token"] else "gap"
    width = _columns(tensors, PROJECTION)
    first_kernel = tensors.get("pre_logits/kernel", tensors.get("head/kernel"))
    if width and first_kernel is not None and len(first_kernel) == 2 * width:
        pooling = "token_gap"
    mlp = tensors.get(f"{_MLP}/reduce/kernel")
    key_bias = "block_00/attention/query_value_bias" not in tensors
    inferred: dict[str, Any] = {
        "num_layers": len({name.split("/")[0] for name in tensors if name.startswith("block_")}),
        "class_token": bool(num_tokens["class_token"]),
        "distillation_token": bool(num_tokens["distillation_token"]),
        "distillation_head": "distillation_head/kernel" in tensors,
        "register_tokens": num_tokens["register_tokens"],
        "classes": _columns(tensors, "head/kernel") or 0,
        "representation_size": _columns(tensors, "pre_logits/kernel"),
        "hidden_size": width,
        "mlp_dim": mlp.shape[0] if mlp is not None else None,
        "swiglu": mlp is not None and _columns(tensors, f"{_MLP}/expand/kernel") != len(mlp),
        "mlp_norm": f"{_MLP}/norm/gamma" in tensors,
        "mask_token": "patch_encoder/mask_token" in tensors,
        "pre_norm": "pre_norm/gamma" in tensors,
        "patch_bias": "patch_encoder/projection/bias" in tensors,
        "qkv_bias": "block_00/attention/qkv/bias" in tensors or not key_bias,
        "key_bias": key_bias,
        # The initial value is unknown, and the stored weights overwrite it.
        "layer_scale": 1e-5 if "block_00/scale_1/gamma" in tensors else None,
        "pooling": "map" if "pooling/probe" in tensors else pooling,
        **_stem_fields(tensors),
    }
    return inferred | positions.position_traits(tensors, optional_prefix=optional_prefix)


def config_of(checkpoint: Checkpoint, **known: Any) -> ViTConfig:
    """Returns the configuration of a checkpoint's model; `known` supplies missing fields."""
    config_fields = checkpoint.inferred | {"classifier_activation": None} | known
    sizes = (config_fields[name] for name in ("hidden_size", "num_layers", "mlp_dim"))
    config_fields.setdefault("num_heads", published_heads(*sizes))
    grid = config_fields.pop("position_grid", None)
    missing = [name for name in ("num_heads", "patch_size") if config_fields.get(name) is None]
    if "image_size" not in config_fields and grid is None:
        missing.append("image_size")
    if missing:
        raise ValueError(
            f"{checkpoint.source} does not contain {', '.join(missing)}: pass "
            f"{', '.join(f'{name}=...' for name in missing)}. Received: "
            f"{', '.join(sorted(known)) or 'nothing'}"
        )
    if "image_size" not in config_fields:
        any_size = {"image_size": (None, None), "position_embedding": "none"}
        stride = ViTConfig(**config_fields | any_size).stride
        config_fields["image_size"] = (grid[0] * stride[0], grid[1] * stride[1])
    elif None in config_fields["image_size"] or "position_grid" in known:
        config_fields["position_grid"] = grid  # the graph resizes it to the size of the images
    elif "prefix_position" not in known:
        config = ViTConfig(**config_fields)
        return config.replace(prefix_position=positions.has_prefix_rows(checkpoint, config.grid))
    return ViTConfig(**config_fields)


def check_consistency(checkpoint: Checkpoint, config: ViTConfig) -> dict[str, np.ndarray]:
    """Checks a checkpoint against a configuration; also splits combined position embeddings."""
    inferred, fields = checkpoint.inferred, config.get_config()
    mismatches = [n for n in _DETERMINED if n in inferred and inferred[n] != fields[n]]
    differing = [f"{name}={inferred[name]} instead of {fields[name]}" for name in mismatches]
    if (inferred.get("layer_scale") is None) != (config.layer_scale is None):
        differing.append(f"layer_scale={inferred.get('layer_scale')}, not {config.layer_scale}")
    kernel = checkpoint.tensors.get(PROJECTION)
    inputs = config.patch[0] * config.patch[1] * config.channels
    if kernel is not None and config.stem_blocks is None and len(kernel) != inputs:
        differing.append(f"{len(kernel)} values per patch instead of {inputs}")
    tensors = dict(checkpoint.tensors)
    if not differing and not positions.try_split_positions(tensors, config):
        shapes = [tensor.shape for name, tensor in tensors.items() if "/position" in name]
        grid = f"a grid of {config.grid} and position_embedding={config.position_embedding!r}"
        differing.append(f"positions of shape {', '.join(map(str, shapes)) or None} for {grid}")
    if differing:
        raise ValueError(
            f"{checkpoint.source} must match its configuration. Received: {', '.join(differing)}"
        )
    return tensors


def _columns(tensors: Mapping[str, np.ndarray], name: str) -> int | None:
    return tensors[name].shape[-1] if name in tensors else None


def _stem_fields(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    width = _columns(tensors, ROOT)
    if width is None:
        return {"stem_blocks": None}
    matches = filter(None, map(_STEM_UNIT.fullmatch, tensors))
    units = collections.Counter(int(match[1]) for match in matches)
    blocks = tuple(units[stage] for stage in sorted(units))
    return {"stem_blocks": blocks, "stem_width": width, "channels": tensors[ROOT].shape[2]}
