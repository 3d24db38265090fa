"""Reading of KerasHub preset folders: backbone weights and, optionally, task weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.preprocessing import INTERPOLATIONS, Preprocessing
from keras_vit.weights import foreign_keras
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.dialects import default_preprocessing
from keras_vit.weights.dialects.keras_hub import BACKBONES, KERAS_HUB


def read_preset(folder: Path, read_json: Callable[[Path], dict[str, Any]]) -> Checkpoint:
    """Reads a checkpoint from the folder of a KerasHub preset."""
    backbone, task, converter = (
        _checked(read_json(folder / name), folder / name)
        for name in ("config.json", "task.json", "image_converter.json")
    )
    if backbone.get("class_name") not in BACKBONES:
        raise ValueError(
            f"The preset {folder} must contain a {' or '.join(BACKBONES)}. Received: "
            f"class_name={backbone.get('class_name')!r}"
        )
    tensors = foreign_keras.read_tensors(folder / "model.weights.h5")
    if (folder / "task.weights.h5").is_file():  # the classifier, without the backbone
        tensors |= foreign_keras.read_tensors(folder / "task.weights.h5")
    checkpoint = foreign_keras.complete(KERAS_HUB.read(tensors, str(folder)), [backbone, task])
    base = default_preprocessing.preprocessing(checkpoint)
    return checkpoint.replace(preprocessing=read_preprocessing(converter.get("config", {}), base))


def read_preprocessing(converter: Mapping[str, Any], base: Preprocessing) -> Preprocessing:
    """Converts the content of an image_converter.json to a `Preprocessing`."""
    if not converter:
        return base
    scale, offset = converter.get("scale"), converter.get("offset")
    # From pixels * scale + offset to (pixels / 255 - mean) / std.
    std = 1 / (255 * np.ravel(1.0 if scale is None else scale))
    mean = -np.ravel(0.0 if offset is None else offset) * std
    changes: dict[str, Any] = {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
    if converter.get("image_size"):
        crops = converter.get("crop_to_aspect_ratio", True)
        changes |= {
            "size": tuple(converter["image_size"]),
            "resize": "crop" if crops else "squash",
            "crop_fraction": 1.0,
            "antialias": converter.get("antialias", False),
        }
    if converter.get("interpolation") in INTERPOLATIONS:
        changes["interpolation"] = converter["interpolation"]
    return dataclasses.replace(base, **changes)


def _checked(content: dict[str, Any], source: Path) -> dict[str, Any]:
    """Returns `content`; raises `ValueError` if its `config` is not a dictionary."""
    if not isinstance(content.get("config", {}), dict):
        raise ValueError(
            f"{source} must describe a Keras object with its arguments. Received: "
            f"config={content['config']!r}"
        )
    return content
