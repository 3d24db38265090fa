"""Reading and writing of transformers' config.json and preprocessor_config.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.keys import image_sides, present, translated
from keras_vit.weights.dialects import dialect_for

_SIZES = {"hidden_size": "hidden_size", "num_hidden_layers": "num_layers"}
_MLP = {"intermediate_size": "mlp_dim"}
_BIAS = {"qkv_bias": "qkv_bias"}
_DROPOUTS = {
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
}
_TOWER = _MLP | {"attention_dropout": "attention_dropout_rate"}
_MASK = {"use_mask_token": "mask_token"}
_REGISTERS = {"num_register_tokens": "register_tokens"}
_RANDOM_POSITIONS = {f"pos_embed_{x}": f"position_{x}" for x in ("shift", "jitter", "rescale")}
# Fields of every type, which are read and written.
_READ = {"num_attention_heads": "num_heads", "layer_norm_eps": "epsilon"}
# Keys with the only value that this package supports, which is also that of a missing key.
_REQUIRED = {"pooler_act": "tanh", "rope_theta": 100.0}


class _ModelType(NamedTuple):
    """Content of config.json for one value of `model_type`.

    Args:
        dialect: Name of the dialect of its weights.
        architecture: Name of its classes, without the ending.
        written: Fields by their key, besides those of every type.
        supports: Whether the type is written for a configuration in this dialect.
    """

    dialect: str
    architecture: str
    written: Mapping[str, str]
    supports: Callable[[ViTConfig], bool] = lambda config: True


_DINOV2 = (
    _DROPOUTS | _BIAS | _MASK | {"use_swiglu_ffn": "swiglu", "layerscale_value": "layer_scale"}
)
_DINOV3 = {
    **{"query_bias": "qkv_bias", "value_bias": "qkv_bias"},  # keys have none
    **{"use_gated_mlp": "swiglu", "layerscale_value": "layer_scale"},
}
_BEIT = {"layer_scale_init_value": "layer_scale", "use_mean_pooling": "norm_after_pooling"}
_VIT = _ModelType("huggingface", "ViT", _MLP | _DROPOUTS | _BIAS)
# The first type that supports a configuration is written.
_TYPES = {
    "vit": _VIT._replace(supports=lambda config: not config.distillation_token),
    "deit": _VIT._replace(architecture="DeiT"),
    "vit_mae": _VIT,
    "dinov2": _ModelType("dinov2", "Dinov2", _DINOV2, lambda config: not config.register_tokens),
    "dinov2_with_registers": _ModelType("dinov2", "Dinov2WithRegisters", _DINOV2 | _REGISTERS),
    "dinov3_vit": _ModelType(
        "dinov3_vit", "DINOv3ViT", _TOWER | _REGISTERS | _RANDOM_POSITIONS | _DINOV3
    ),
    "clip_vision_model": _ModelType(
        "clip", "CLIPVision", _TOWER, lambda config: config.class_token
    ),
    "siglip_vision_model": _ModelType("clip", "SiglipVision", _TOWER),
    "beit": _ModelType("beit", "Beit", _MLP | _DROPOUTS | _MASK | _BEIT),
}
# Models of images and texts, whose `vision_config` may lack the type.
_TOWERS = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}
# From `hidden_act` to this package's GELU; the first name of each is written.
_GELUS = {
    **{"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"},
    "quick_gelu": "quick",
}
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
    config = _vision_config(config)
    kind = config.get("model_type")
    if kind not in _TYPES:
        raise ValueError(
            f"The config.json of {source} must describe a model of type "
            f"{', '.join((*_TYPES, *_TOWERS))}. Received: model_type={kind!r}"
        )
    config_fields = present(config, _READ | _RANDOM_POSITIONS)
    if "hidden_act" in config:
        gelus = {"silu": "exact"} if config.get("use_gated_mlp") else _GELUS
        config_fields["gelu"] = translated("hidden_act", config["hidden_act"], gelus, source)
    for key, value in _REQUIRED.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"`{key}` of {source} must be {value}. Received: {key}={config[key]!r}"
            )
    return config_fields


def read_image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the model's image size, or None if config.json does not specify it."""
    return image_sides(_vision_config(config).get("image_size"))


def _vision_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `vision_config` of a model of images and texts, otherwise the whole config.json."""
    kind = config.get("model_type")
    if kind not in _TOWERS:
        return config
    return {**(config.get("vision_config") or {}), "model_type": _TOWERS[kind]}


def read_labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...] | None:
    """Returns the class names, or None if they are missing or only placeholders."""
    names = config.get("id2label") or {}
    labels = tuple(str(names.get(str(index), "")) for index in range(len(names)))
    placeholders = tuple(f"LABEL_{index}" for index in range(len(names)))
    return labels if len(labels) == classes and labels != placeholders and all(labels) else None


def read_preprocessing(config: Mapping[str, Any], base: Preprocessing) -> Preprocessing:
    """Returns the preprocessing specified by a preprocessor_config.json."""
    changes: dict[str, Any] = {}
    size, crop = image_sides(config.get("size")), image_sides(config.get("crop_size"))
    if config.get("do_center_crop") and crop and size:
        # `shortest_edge` is the shorter side; two numbers, or one in old DeiT files, both sides.
        keeps_ratio = isinstance(config["size"], Mapping) and "shortest_edge" in config["size"]
        resize = "crop" if keeps_ratio else "squash_crop"
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


def model_type_of(config: ViTConfig) -> str:
    """Returns the `model_type` of a model configuration."""
    dialect = dialect_for("huggingface", config).name
    return next(n for n, t in _TYPES.items() if t.dialect == dialect and t.supports(config))


def pooling_of(config: ViTConfig) -> str:
    """Returns the pooling of the vector or the logits that transformers' model returns."""
    kind = model_type_of(config)
    if kind == "beit" and config.norm_after_pooling:
        return "gap"
    return "map" if kind == "siglip_vision_model" else "token"


def write_config(config: ViTConfig, labels: tuple[str, ...] | None) -> dict[str, Any]:
    """Returns the content of the config.json for a model configuration."""
    grid = tuple((side or 0) // p for side, p in zip(config.image_size, config.patch, strict=True))
    kind = model_type_of(config)
    _, architecture, written, _ = _TYPES[kind]
    ratio = None if "intermediate_size" in written else _mlp_ratio(config)
    unsupported = {
        "image_size": config.image_size[0] != config.image_size[1] or None in config.image_size,
        "position_grid": config.position_grid not in (None, grid),
        "patch_size": config.patch[0] != config.patch[1],
        "representation_size": bool(config.classes and config.representation_size),
        "pooling": config.classes and config.pooling != pooling_of(config),
        "mlp_dim": ratio == 0,
    }
    if names := [name for name, is_unsupported in unsupported.items() if is_unsupported]:
        values = ", ".join(f"{name}={getattr(config, name)}" for name in names)
        raise ValueError(
            "A model for the transformers library must have square images and patches, and must "
            f"classify from the class token without a representation layer. Received: {values}. "
            "Write the model in the 'timm' or 'keras' format."
        )
    if labels is None or len(labels) != config.classes:
        labels = tuple(f"LABEL_{index}" for index in range(config.classes))
    classifier = "ForImageClassification" + "WithTeacher" * config.distillation_head
    gated = config.swiglu and kind == "dinov3_vit"
    gelu = next(act for act, gelu in _GELUS.items() if gelu == config.gelu)
    fields = {**_SIZES, **_READ, "num_channels": "channels", **written}
    content = {
        "architectures": [architecture + (classifier if config.classes else "Model")],
        "model_type": kind,
        "hidden_act": "silu" if gated else gelu,
        "image_size": config.image_size[0],
        "patch_size": config.patch[0],
        **{key: getattr(config, name) for key, name in fields.items()},
    }
    if ratio:
        content["mlp_ratio"] = ratio
    if kind == "beit":
        content["use_relative_position_bias"] = True
    if config.representation_size:
        content |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    if config.classes:
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    return content


def _mlp_ratio(config: ViTConfig) -> int:
    """Returns the `mlp_ratio` of DINOv2, or 0 if there is no integer."""
    ratio = round(config.mlp_dim / config.hidden_size * (1.5 if config.swiglu else 1))
    width = config.hidden_size * ratio
    width = -(-int(width * 2 / 3) // 8) * 8 if config.swiglu else width
    return ratio if width == config.mlp_dim else 0


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
