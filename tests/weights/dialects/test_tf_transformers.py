from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit.weights import read_checkpoint
from keras_vit.weights.infer_config import config_of
from tests.weights.foreign_files import (
    Layers,
    Pieces,
    assert_same_weights,
    source_model,
    write_keras_2,
)


def layers_of(model: keras.Model) -> dict[str, Layers]:
    """models/vit/modeling_tf_vit.py and models/deit/modeling_tf_deit.py, transformers 4.57.6."""
    pieces = Pieces(model)
    config = pieces.config
    kind = "deit" if config.distillation_token else "vit"
    scope = "tf_dei_t_for_image_classification" if config.distillation_token else "tf_vi_t_model"
    inner: Layers = {
        "embeddings": {
            "cls_token": pieces["patch_encoder/class_token"],
            "position_embeddings": pieces.positions,
        },
        "embeddings/patch_embeddings/projection": pieces.dense("patch_encoder/projection")
        | {"kernel": pieces.patch_kernel},
        "layernorm": pieces.norm("encoder_norm"),
    }
    if config.distillation_token:
        inner["embeddings"]["distillation_token"] = pieces["patch_encoder/distillation_token"]
    if config.representation_size:
        inner["pooler/dense"] = pieces.dense("pre_logits")
    for index in range(config.num_layers):
        ours, theirs = f"block_{index:02d}", f"encoder/layer_._{index}"
        attention = f"{theirs}/attention/attention"
        inner |= {
            **{f"{attention}/{name}": arrays for name, arrays in pieces.qkv(ours).items()},
            f"{theirs}/attention/output/dense": pieces.dense(f"{ours}/attention/out"),
            f"{theirs}/intermediate/dense": pieces.dense(f"{ours}/mlp/expand"),
            f"{theirs}/output/dense": pieces.dense(f"{ours}/mlp/reduce"),
            f"{theirs}/layernorm_before": pieces.norm(f"{ours}/norm_1"),
            f"{theirs}/layernorm_after": pieces.norm(f"{ours}/norm_2"),
        }
    layers = {kind: {f"{scope}/{kind}/{name}": arrays for name, arrays in inner.items()}}
    head = "cls_classifier" if config.distillation_head else "classifier"
    for ours, theirs in (("head", head), ("distillation_head", "distillation_classifier")):
        if f"{ours}/kernel" in pieces:
            layers[theirs] = {f"{scope}/{theirs}": pieces.dense(ours)}
    return layers


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"classes": 0, "representation_size": 24},
        {"distillation_token": True, "num_layers": 11},
        {"distillation_token": True, "distillation_head": True},
        {"qkv_bias": False},
    ],
    ids=str,
)
def test_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    path = write_keras_2(tmp_path / "tf_model.h5", layers_of(model), scope=":0")
    assert_same_weights(path, model)


def test_folder_tells_the_configuration(tmp_path: Path) -> None:
    model = source_model(image_size=(15, 10), distillation_token=True)
    write_keras_2(tmp_path / "tf_model.h5", layers_of(model), scope=":0")
    content = {
        "model_type": "deit",
        "num_attention_heads": 4,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu_new",
        "id2label": {str(index): f"class {index}" for index in range(11)},
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert_same_weights(tmp_path, model)
    checkpoint = read_checkpoint(tmp_path)
    config = config_of(checkpoint)
    assert (config.num_heads, config.epsilon, config.gelu) == (4, 1e-5, "tanh")
    assert (config.image_size, config.distillation_token) == ((15, 10), True)
    assert checkpoint.preprocessing.class_names[10] == "class 10"


def test_file_alone_has_the_numerics_of_the_library(tmp_path: Path) -> None:
    path = write_keras_2(tmp_path / "tf_model.h5", layers_of(source_model()))
    inferred = read_checkpoint(path).inferred
    assert (inferred["gelu"], inferred["epsilon"]) == ("exact", 1e-12)
    assert (inferred["prefix_position"], inferred["position_grid"]) == (True, None)


@pytest.mark.slow
def test_decoder_of_a_masked_autoencoder_is_left_out(tmp_path: Path) -> None:
    model = source_model(classes=0)
    layers = layers_of(model)
    layers["decoder"] = {
        "tf_vi_t_mae_for_pre_training/decoder/decoder_norm": Pieces(model).norm("encoder_norm")
    }
    path = write_keras_2(tmp_path / "tf_model.h5", layers, scope=":0")
    assert_same_weights(path, model)
    assert len(read_checkpoint(path).ignored) == 2


def test_message_names_what_is_missing(tmp_path: Path) -> None:
    layers = layers_of(source_model())
    del layers["classifier"]["tf_vi_t_model/classifier"]["bias"]
    path = write_keras_2(tmp_path / "tf_model.h5", layers)
    with pytest.raises(
        ValueError, match=r"transformers for TensorFlow .* Missing: classifier/bias\. "
    ):
        read_checkpoint(path)
