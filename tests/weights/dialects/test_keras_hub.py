from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit.weights import read_checkpoint
from keras_vit.weights.dialects.keras_hub import read_layers
from tests.weights.foreign_files import Layers, assert_same_weights, source_model, write_keras_3
from tests.weights.keras_hub_files import backbone_of, head_of

VARIANTS: list[dict[str, Any]] = [
    {},
    {"representation_size": 17, "num_layers": 11},
    {"class_token": False, "pooling": "gap"},
    {"patch_bias": False, "classes": 0},
    {"distillation_token": True},
]


def below(scope: str, layers: Layers) -> Layers:
    return {f"{scope}/{name}": arrays for name, arrays in layers.items()}


def whole(model: keras.Model) -> Layers:
    return below("vi_t_backbone", backbone_of(model)) | head_of(model)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_weights_of_a_task(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    assert_same_weights(write_keras_3(tmp_path / "m.weights.h5", whole(model)), model)


def test_weights_tell_the_heads(tmp_path: Path) -> None:
    path = write_keras_3(tmp_path / "m.weights.h5", backbone_of(source_model()))
    inferred = read_checkpoint(path).inferred
    assert (inferred["num_heads"], inferred["patch_size"], inferred["classes"]) == (4, (3, 2), 0)
    assert (inferred["gelu"], inferred["epsilon"]) == ("exact", 1e-6)
    assert (inferred["prefix_position"], inferred["position_grid"]) == (True, None)


def test_read_layers() -> None:
    backbone = {"class_name": "DeiTBackbone", "config": {"layer_norm_epsilon": 1e-12}}
    assert read_layers([backbone]) == {"epsilon": 1e-12}
    task = {"class_name": "DeiTImageClassifier", "config": {"pooling": "token"}}
    assert read_layers([backbone, task])["pooling"] == "token"


@pytest.mark.parametrize(
    ("class_token", "pooling"), [(True, "gap"), (False, "token"), (True, None)]
)
def test_another_pooling_is_refused(class_token: bool, pooling: str | None) -> None:
    backbone = {"class_name": "ViTBackbone", "config": {"use_class_token": class_token}}
    task = {"class_name": "ViTImageClassifier", "config": {"pooling": pooling}}
    with pytest.raises(
        ValueError, match=rf"must pool by the class token, .* Received: pooling={pooling!r}, "
    ):
        read_layers([backbone, task])


def test_message_names_what_is_missing(tmp_path: Path) -> None:
    layers = whole(source_model())
    del layers["vi_t_backbone/vit_encoder/transformer_block_2/mha/key"]["1"]
    with pytest.raises(
        ValueError,
        match=r"complete KerasHub .* Missing: vit_encoder/transformer_block_2/mha/key/1\. ",
    ):
        read_checkpoint(write_keras_3(tmp_path / "m.weights.h5", layers))
