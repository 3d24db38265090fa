"""Reading and writing of transformers' config.json and preprocessor_config.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.keys import present, translated
from keras_vit.weights.dialects import dialect_for

_READ = {"num_attention_heads": "num_heads", "layer_norm_eps": "epsilon"}
_WRITTEN = {
    **_READ,
    **{"hidden_size": "hidden_size", "num_hidden_layers": "num_layers"},
    **{"num_channels": "channels"},
}
_MLP = {"intermediate_size": "mlp_dim"}
_DROPOUTS = {
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
}
_ATTENTION_DROPOUT = {"attention_dropout": "attention_dropout_rate"}
_RANDOM_POSITIONS = {f"pos_embed_{x}": f"position_{x}" for x in ("shift", "jitter", "rescale")}


@dataclasses.dataclass(frozen=True)
class _ModelType:
    """Content of config.json for one value of `model_type`.

    Args:
        dialect: Name of the dialect of its weights.
        architecture: Name of its classes, without the ending.
        written: Fields by their key, besides those of every type.
        computed: Returns other values for a configuration.
        read: Fields that are read, by their key.
        num_heads: Value if the file does not contain it, or None if it is inferred from the sizes.
        required: Only values of keys that this package computes; a missing key has this value.
        suits: Whether the type is written for a configuration.
    """

    dialect: str
    architecture: str
    written: Mapping[str, str]
    computed: Callable[[ViTConfig], Mapping[str, Any]] = lambda config: {}
    read: Mapping[str, str] = dataclasses.field(default_factory=lambda: _READ)
    num_heads: int | None = 12
    required: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    suits: Callable[[ViTConfig], bool] = lambda config: True


def _vit(config: ViTConfig) -> dict[str, Any]:
    content: dict[str, Any] = {"qkv_bias": config.qkv_bias}
    if config.representation_size:
        content |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    return content


def _dinov2(config: ViTConfig) -> dict[str, Any]:
    ratio = round(config.mlp_dim / config.hidden_size * (1.5 if config.swiglu else 1))
    content = {"mlp_ratio": ratio, "use_swiglu_ffn": config.swiglu, "qkv_bias": config.qkv_bias}
    return content | {"layerscale_value": config.layer_scale, "use_mask_token": config.mask_token}


def _dinov3(config: ViTConfig) -> dict[str, Any]:
    return {
        **{"query_bias": config.qkv_bias, "key_bias": False, "value_bias": config.qkv_bias},
        **{"use_gated_mlp": config.swiglu, "layerscale_value": config.layer_scale or 1.0},
        **({"hidden_act": "silu"} if config.swiglu else {}),
    }


def _beit(config: ViTConfig) -> dict[str, Any]:
    return {
        **{"use_relative_position_bias": True, "use_mask_token": config.mask_token},
        **{"layer_scale_init_value": config.layer_scale or 0},
        "use_mean_pooling": config.norm_after_pooling,
    }


_VIT = _ModelType(
    "huggingface", "ViT", _MLP | _DROPOUTS, _vit, num_heads=None, required={"pooler_act": "tanh"}
)
_TOWER = _ModelType("clip", "CLIPVision", _MLP | _ATTENTION_DROPOUT)
_REGISTERS = {"num_register_tokens": "register_tokens"}
# The first type of a dialect that suits a configuration is written.
_TYPES = {
    "vit": dataclasses.replace(_VIT, suits=lambda config: not config.distillation_token),
    "deit": dataclasses.replace(_VIT, architecture="DeiT"),
    "vit_mae": _VIT,
    "dinov2_with_registers": _ModelType(
        *("dinov2", "Dinov2WithRegisters", _DROPOUTS | _REGISTERS, _dinov2),
        suits=lambda config: config.register_tokens > 0,
    ),
    "dinov2": _ModelType("dinov2", "Dinov2", _DROPOUTS, _dinov2),
    "dinov3_vit": _ModelType(
        *("dinov3_vit", "DINOv3ViT"),
        _MLP | _ATTENTION_DROPOUT | _REGISTERS | _RANDOM_POSITIONS,
        _dinov3,
        read=_READ | _RANDOM_POSITIONS,
        num_heads=6,
        required={"rope_theta": 100.0},
    ),
    "clip_vision_model": dataclasses.replace(_TOWER, suits=lambda config: config.class_token),
    "siglip_vision_model": dataclasses.replace(_TOWER, architecture="SiglipVision"),
    "beit": _ModelType("beit", "Beit", _MLP | _DROPOUTS, _beit),
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
    config = _of_images(config)
    kind = config.get("model_type")
    if kind not in _TYPES:
        raise ValueError(
            f"The config.json of {source} must describe a model of type "
            f"{', '.join((*_TYPES, *_TOWERS))}. Received: model_type={kind!r}"
        )
    model_type = _TYPES[kind]
    config_fields: dict[str, Any] = {}
    if model_type.num_heads:
        config_fields["num_heads"] = model_type.num_heads
    config_fields |= present(config, model_type.read)
    if "hidden_act" in config:
        gelus = {"silu": "exact"} if config.get("use_gated_mlp") else _GELUS
        config_fields["gelu"] = translated("hidden_act", config["hidden_act"], gelus, source)
    for key, value in model_type.required.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"`{key}` of {source} must be {value}. Received: {key}={config[key]!r}"
            )
    return config_fields


def read_image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the model's image size, or None if config.json does not specify it."""
    return _sides(_of_images(config).get("image_size"))


def _of_images(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the content for images in the config.json of a model of images and texts."""
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


def model_type_of(config: ViTConfig) -> str:
    """Returns the `model_type` of a model configuration."""
    dialect = dialect_for("huggingface", config).name
    return next(n for n, t in _TYPES.items() if t.dialect == dialect and t.suits(config))


def pooling_of(config: ViTConfig) -> str:
    """Returns the pooling of the vector or the logits that transformers' model returns."""
    kind = model_type_of(config)
    if kind == "beit" and config.norm_after_pooling:
        return "gap"
    return "map" if kind == "siglip_vision_model" else "token"


def write_config(config: ViTConfig, labels: tuple[str, ...] | None) -> dict[str, Any]:
    """Returns the content of the config.json for a model configuration."""
    cells = tuple((side or 0) // p for side, p in zip(config.image_size, config.patch, strict=True))
    kind = model_type_of(config)
    model_type = _TYPES[kind]
    content = dict(model_type.computed(config))
    unequal = {
        "image_size": config.image_size[0] != config.image_size[1] or None in config.image_size,
        "position_grid": config.position_grid not in (None, cells),
        "patch_size": config.patch[0] != config.patch[1],
        "representation_size": bool(config.classes and config.representation_size),
        "pooling": config.classes and config.pooling != pooling_of(config),
        "mlp_dim": "mlp_ratio" in content and config.mlp_dim != _mlp_dim(config, content),
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
    classifier = "ForImageClassification" + "WithTeacher" * config.distillation_head
    content = {
        "architectures": [model_type.architecture + (classifier if config.classes else "Model")],
        "model_type": kind,
        "hidden_act": next(act for act, gelu in _GELUS.items() if gelu == config.gelu),
        "image_size": config.image_size[0],
        "patch_size": config.patch[0],
        **{key: getattr(config, name) for key, name in {**_WRITTEN, **model_type.written}.items()},
        **content,
    }
    if config.classes:
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    return content


def _mlp_dim(config: ViTConfig, content: Mapping[str, Any]) -> int:
    """Returns the width of DINOv2's MLPs with this `mlp_ratio`."""
    width = config.hidden_size * int(content["mlp_ratio"])
    return -(-int(width * 2 / 3) // 8) * 8 if config.swiglu else width


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
