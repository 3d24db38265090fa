"""Reading and writing of transformers' config.json and preprocessor_config.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.keys import present, translated

_MODEL_TYPES = ("vit", "deit", "vit_mae")
_FIELDS = {"num_attention_heads": "num_heads", "layer_norm_eps": "epsilon"}
# From `hidden_act` to this package's GELU; the first name of each is written.
_GELUS = {"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
# `resample` is the number of a PIL filter.
_FILTERS = {0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic"}

# Image processor of each resize method; only CLIP's scales the shorter side.
_PROCESSORS = {
    "crop": "CLIPImageProcessor",
    "squash": "ViTImageProcessor",
    "squash_crop": "DeiTImageProcessor",
}


def read_config(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the `ViTConfig` fields specified by a config.json."""
    kind = config.get("model_type")
    if kind not in _MODEL_TYPES:
        raise ValueError(
            f"The config.json of {source} must describe a model of type "
            f"{', '.join(_MODEL_TYPES)}. Received: model_type={kind!r}"
        )
    config_fields = present(config, _FIELDS)
    if "hidden_act" in config:
        config_fields["gelu"] = translated("hidden_act", config["hidden_act"], _GELUS, source)
    if config.get("pooler_act", "tanh") != "tanh":
        raise ValueError(
            f"`pooler_act` of {source} must be tanh. Received: pooler_act={config['pooler_act']!r}"
        )
    return config_fields


def read_image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the model's image size, or None if config.json does not specify it."""
    return _sides(config.get("image_size"))


def read_labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...] | None:
    """Returns the class names, or None if they are missing or only placeholders."""
    names = config.get("id2label") or {}
    labels = tuple(str(names.get(str(index), "")) for index in range(len(names)))
    placeholders = tuple(f"LABEL_{index}" for index in range(len(names)))
    return labels if len(labels) == classes and labels != placeholders and all(labels) else None


def read_preprocessing(config: Mapping[str, Any], base: Preprocessing) -> Preprocessing:
    """Returns the preprocessing specified by a preprocessor_config.json."""
    changes: dict[str, Any] = {}
    size, crop = _sides(config.get("size")), _sides(config.get("crop_size"))
    if config.get("do_center_crop") and crop and size:
        # `shortest_edge` is the shorter side; two numbers, or one in old DeiT files, both sides.
        whole = isinstance(config["size"], Mapping) and "shortest_edge" in config["size"]
        resize = "crop" if whole else "squash_crop"
        changes = {"size": crop, "resize": resize, "crop_fraction": _share(crop[0], min(size))}
    elif size:
        changes = {"size": size, "resize": "squash"}
    if config.get("resample") in _FILTERS:
        changes["interpolation"] = _FILTERS[config["resample"]]
    if config.get("do_normalize", True):
        changes |= present(config, {"image_mean": "mean", "image_std": "std"})
    else:
        changes |= {"mean": (0.0,), "std": (1.0,)}
    # The library normalizes pixels * factor, `Preprocessing` pixels / 255.
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    if (scale := 255 * factor) != 1:
        for name in ("mean", "std"):
            values = np.ravel(changes.get(name, getattr(base, name))).tolist()
            changes[name] = tuple(value / scale for value in values)
    return dataclasses.replace(base, **changes)


def write_config(config: ViTConfig, labels: tuple[str, ...] | None) -> dict[str, Any]:
    """Returns the content of the config.json for a model configuration."""
    cells = tuple((side or 0) // p for side, p in zip(config.image_size, config.patch, strict=True))
    unequal = {
        "image_size": config.image_size[0] != config.image_size[1] or None in config.image_size,
        "position_grid": config.position_grid not in (None, cells),
        "patch_size": config.patch[0] != config.patch[1],
        "representation_size": bool(config.classes and config.representation_size),
        "pooling": config.classes and config.pooling != "token",
    }
    if wrong := [name for name, differs in unequal.items() if differs]:
        values = ", ".join(f"{name}={getattr(config, name)}" for name in wrong)
        raise ValueError(
            "A model for the transformers library must have square images and patches, and must "
            f"classify from the class token without a representation layer. Received: {values}. "
            "Write the model in the 'timm' or 'keras' format."
        )
    if labels is None or len(labels) != config.classes:
        labels = tuple(f"LABEL_{index}" for index in range(config.classes))
    kind = "deit" if config.distillation_token else "vit"
    prefix = "DeiT" if config.distillation_token else "ViT"
    classifier = "ForImageClassification" + "WithTeacher" * config.distillation_head
    content: dict[str, Any] = {
        "architectures": [prefix + (classifier if config.classes else "Model")],
        "model_type": kind,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": next(act for act, gelu in _GELUS.items() if gelu == config.gelu),
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "layer_norm_eps": config.epsilon,
        "image_size": config.image_size[0],
        "patch_size": config.patch[0],
        "num_channels": config.channels,
        "qkv_bias": config.qkv_bias,
    }
    if config.representation_size:
        content |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    if config.classes:
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    return content


def write_preprocessing(preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns the content of the preprocessor_config.json for a preprocessing."""
    if preprocessing.resize not in _PROCESSORS:
        raise ValueError(
            "`resize` of the preprocessing must be crop, squash or squash_crop to be written for "
            f"transformers, whose processors do not pad. Received: {preprocessing.resize}"
        )
    height, width = preprocessing.size
    crop = preprocessing.resize != "squash"
    share = preprocessing.crop_fraction if crop else 1.0
    content: dict[str, Any] = {
        "image_processor_type": _PROCESSORS[preprocessing.resize],
        "do_resize": True,
        "size": {"height": int(height / share), "width": int(width / share)},
        "resample": next(n for n, name in _FILTERS.items() if name == preprocessing.interpolation),
        "do_center_crop": crop,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }
    if preprocessing.resize == "crop":
        content["size"] = {"shortest_edge": int(min(height, width) / share)}
    if crop:
        content["crop_size"] = {"height": height, "width": width}
    return content


def _share(crop: int, scaled: int) -> float:
    """Returns the crop fraction: the size of the crop divided by the resized image's size."""
    share = min(1.0, crop / scaled)
    # A later division by the fraction must not lose a pixel to rounding.
    return share if int(crop / share) >= scaled else math.nextafter(share, 0)


def _sides(size: Any) -> tuple[int, int] | None:
    """Returns the height and width in a `size` entry, which is one number in older files."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or (size.get("height"), size.get("width"))
    if isinstance(size, int):
        return size, size
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return None
    height, width = size
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None
