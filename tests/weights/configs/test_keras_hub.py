from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import config_of as config_of_model
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import read_checkpoint
from keras_vit.weights.configs.keras_hub import read_preprocessing
from keras_vit.weights.infer_config import config_of
from tests.weights.foreign_files import assert_same_weights, source_model, write_keras_3
from tests.weights.keras_hub_files import backbone_of, head_of

CONVERTER = {
    "image_size": [15, 14],
    "scale": [1 / (255 * std) for std in (0.229, 0.224, 0.225)],
    "offset": [-mean / std for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))],
    "interpolation": "bicubic",
    "antialias": True,
    "crop_to_aspect_ratio": False,
}


def described(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """`serialize_keras_object` of Keras 3.15, which `save_to_preset` writes."""
    return {
        "module": "keras_hub.src",
        "class_name": name,
        "config": arguments,
        "registered_name": f"keras_hub>{name}",
    }


def write_preset(
    folder: Path, model: keras.Model, task: bool = True, converter: Any = None
) -> Path:
    """`save_to_preset` of keras_hub/src/utils/preset_utils.py, release 0.32.0."""
    config = config_of_model(model)
    kind = "DeiT" if config.distillation_token else "ViT"
    arguments = {
        "image_shape": [*config.image_size, config.channels],
        "patch_size": list(config.patch),
        "num_heads": config.num_heads,
        "layer_norm_epsilon": 1e-5,
        **({} if kind == "DeiT" else {"use_class_token": config.class_token}),
    }
    backbone = described(f"{kind}Backbone", arguments)
    (folder / "config.json").write_text(json.dumps(backbone))
    write_keras_3(folder / "model.weights.h5", backbone_of(model))
    if task:
        arguments = {"backbone": backbone, "num_classes": config.classes, "pooling": config.pooling}
        (folder / "task.json").write_text(
            json.dumps(described(f"{kind}ImageClassifier", arguments))
        )
        write_keras_3(folder / "task.weights.h5", head_of(model))
    if converter:
        content = described(f"{kind}ImageConverter", converter)
        (folder / "image_converter.json").write_text(json.dumps(content))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"representation_size": 17, "num_layers": 11},
        {"class_token": False, "pooling": "gap"},
        {"distillation_token": True},
    ],
    ids=str,
)
def test_task(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    write_preset(tmp_path, model)
    assert_same_weights(tmp_path, model)
    config = config_of(read_checkpoint(tmp_path))
    expected = config_of_model(model)
    names = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size", "image_size")
    names += ("classes", "pooling", "representation_size", "class_token", "distillation_token")
    assert {n: getattr(config, n) for n in names} == {n: getattr(expected, n) for n in names}
    assert (config.gelu, config.epsilon, config.grid) == ("exact", 1e-5, (5, 7))


@pytest.mark.slow
def test_backbone_alone(tmp_path: Path) -> None:
    model = source_model(classes=0)
    assert_same_weights(write_preset(tmp_path, model, task=False), model)
    assert read_checkpoint(tmp_path).inferred["classes"] == 0


def test_preprocessing_of_the_image_converter(tmp_path: Path) -> None:
    write_preset(tmp_path, source_model(), converter=CONVERTER)
    preprocessing = read_checkpoint(tmp_path).preprocessing
    assert (preprocessing.size, preprocessing.resize, preprocessing.interpolation) == (
        *((15, 14), "squash", "bicubic"),
    )
    pixels = np.arange(0, 250, 10, "uint8").reshape(1, -1, 1) * np.ones(3, "uint8")
    expected = pixels * np.array(CONVERTER["scale"]) + np.array(CONVERTER["offset"])
    np.testing.assert_allclose(preprocessing.scale(pixels), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("converter", "changes"),
    [
        ({}, {}),
        ({"scale": None, "offset": None}, {"mean": 0.0, "std": 1 / 255}),
        ({"scale": 1 / 255}, {"mean": 0.0, "std": 1.0}),
        (
            {"scale": 1 / 255, "image_size": [5, 7], "antialias": True},
            {"mean": 0.0, "std": 1.0, "size": (5, 7), "crop_fraction": 1.0},
        ),
        (
            {"scale": 1 / 255, "image_size": [5, 7], "interpolation": "lanczos5"},
            {"mean": 0.0, "std": 1.0, "size": (5, 7), "crop_fraction": 1.0, "antialias": False},
        ),
    ],
)
def test_read_preprocessing(converter: dict[str, Any], changes: dict[str, Any]) -> None:
    base = Preprocessing(interpolation="nearest")
    expected = Preprocessing(**{"interpolation": "nearest", **changes})
    assert read_preprocessing(converter, base) == expected


def test_preset_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(described("ResNetBackbone", {})))
    (tmp_path / "model.weights.h5").touch()
    with pytest.raises(
        ValueError, match=r"must contain a ViTBackbone or DeiTBackbone\. .*='ResNetBackbone'"
    ):
        read_checkpoint(tmp_path)


def test_damaged_configuration(tmp_path: Path) -> None:
    write_preset(tmp_path, source_model())
    content = {**described("ViTImageClassifier", {}), "config": [3]}
    (tmp_path / "task.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"task\.json must describe a Keras object .* Received: config=\[3\]"
    ):
        read_checkpoint(tmp_path)
