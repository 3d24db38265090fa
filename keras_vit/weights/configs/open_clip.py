"""Reading of open_clip_config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.keys import image_sides, present, translated

_POOLINGS = {"tok": "token", "avg": "gap"}
_RESIZES = {"shortest": "crop", "squash": "squash", "longest": "pad"}


def read_config(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the `ViTConfig` fields specified by an open_clip_config.json."""
    vision = _vision(config)
    # The defaults of open_clip, see `CLIPVisionCfg` in its model.py.
    fields = {"num_heads": vision.get("width", 768) // vision.get("head_width", 64)}
    fields["pooling"] = translated("pool_type", vision.get("pool_type", "tok"), _POOLINGS, source)
    tanh = (vision.get("act_kwargs") or {}).get("approximate") == "tanh"
    quick = (config.get("model_cfg") or {}).get("quick_gelu")
    fields["gelu"] = "quick" if quick else "tanh" if tanh else "exact"
    fields |= present(vision.get("norm_kwargs") or {}, {"eps": "epsilon"})
    if vision.get("final_ln_after_pool") and fields["pooling"] == "gap":
        fields["norm_after_pooling"] = True
    return fields


def read_image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the model's image size, or None if the file does not specify it."""
    return image_sides(_vision(config).get("image_size"))


def read_labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...] | None:
    """Returns None: the models have no classes."""
    return None


def read_preprocessing(config: Mapping[str, Any], base: Preprocessing) -> Preprocessing:
    """Returns the preprocessing of open_clip, which crops images only to the aspect ratio."""
    preprocess = config.get("preprocess_cfg") or {}
    changes = present(preprocess, {name: name for name in ("mean", "std", "interpolation")})
    changes["crop_fraction"] = 1.0
    if size := read_image_size(config):
        changes["size"] = size
    if preprocess.get("resize_mode") in _RESIZES:
        changes["resize"] = _RESIZES[preprocess["resize_mode"]]
    return dataclasses.replace(base, **changes)


def _vision(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return (config.get("model_cfg") or {}).get("vision_cfg") or {}
