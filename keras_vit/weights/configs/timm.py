"""Reading of timm's config.json."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.preprocessing import INTERPOLATIONS, Preprocessing
from keras_vit.weights.configs.keys import present, translated

# An empty `global_pool` means a model without a classifier, whose pooling is unknown.
_VALUES = {
    "act_layer": ("gelu", {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}),
    "global_pool": ("pooling", {"token": "token", "avg": "gap", "max": "max", "map": "map"}),
}
_TANH = r"vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip.*|vit_large.*siglip.*_512"
# Architectures whose activation is not in config.json.
_GELUS = {r".*quickgelu.*": "quick", _TANH: "tanh"}
# `crop_mode`: "squash" scales directly to the size; "border" pads, which is closest to "squash".
_RESIZES = {"center": "crop", "squash": "squash", "border": "squash"}


def read_config(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the `ViTConfig` fields specified by a timm config.json."""
    arguments = config.get("model_args") or {}
    config_fields = present(arguments, {"num_heads": "num_heads"})
    for pattern, gelu in _GELUS.items():
        if re.fullmatch(pattern, str(config.get("architecture"))):
            config_fields["gelu"] = gelu
    settings = {**config, **arguments}  # the pooling is in both; the arguments build the model
    for theirs, (ours, values) in _VALUES.items():
        if settings.get(theirs) not in (None, ""):
            config_fields[ours] = translated(theirs, settings[theirs], values, source)
    return config_fields


def read_image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the model's image size, or None if config.json does not specify it."""
    pretrained = config.get("pretrained_cfg") or {}
    if "input_size" not in pretrained:
        return None
    _, height, width = pretrained["input_size"]
    return height, width


def read_labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...] | None:
    """Returns the class names, or None if config.json does not contain them."""
    names = config.get("label_names")
    labels = tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()
    return labels if labels and len(labels) == classes else None


def read_preprocessing(config: Mapping[str, Any], base: Preprocessing) -> Preprocessing:
    """Returns the preprocessing that timm uses for evaluation."""
    pretrained = config.get("pretrained_cfg") or {}
    changes = present(pretrained, {"mean": "mean", "std": "std", "crop_pct": "crop_fraction"})
    if size := read_image_size(config):
        changes["size"] = size
    if pretrained.get("interpolation") in INTERPOLATIONS:
        changes["interpolation"] = pretrained["interpolation"]
    if pretrained.get("crop_mode") in _RESIZES:
        changes["resize"] = _RESIZES[pretrained["crop_mode"]]
    return dataclasses.replace(base, **changes)
