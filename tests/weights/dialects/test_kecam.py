from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.dialects.kecam import read_layers
from keras_vit.weights.infer_config import config_of
from tests.weights.foreign_files import (
    Layers,
    Pieces,
    assert_same_weights,
    source_model,
    write_keras_2,
)

# Layers without weights have a group of their own, which is empty.
EMPTY = ("block0_mlp_gelu", "tf.__operators__.getitem")


def layers_of(model: keras.Model, empty: tuple[str, ...] = EMPTY) -> dict[str, Layers]:
    """keras_cv_attention_models/beit/beit.py, release 1.4.3."""
    pieces = Pieces(model)
    flat: Layers = {
        "stem_conv": pieces.dense("patch_encoder/projection") | {"kernel": pieces.patch_kernel},
        "positional_embedding": {"positional_embedding": pieces.positions},
        "out_ln": pieces.norm("encoder_norm"),
    }
    if "patch_encoder/class_token" in pieces:
        flat["cls_token"] = {"tokens": pieces["patch_encoder/class_token"]}
    if pieces.config.pre_norm:
        flat["pre_ln"] = pieces.norm("pre_norm")
    if "head/kernel" in pieces:
        flat["predictions"] = pieces.dense("head")
    for index in range(pieces.config.num_layers):
        ours, theirs = f"block_{index:02d}", f"block{index}"
        flat |= {
            f"{theirs}_attn_ln": pieces.norm(f"{ours}/norm_1"),
            f"{theirs}_attn_qkv": pieces.dense(f"{ours}/attention/qkv"),
            f"{theirs}_attn_output": pieces.dense(f"{ours}/attention/out"),
            f"{theirs}_mlp_ln": pieces.norm(f"{ours}/norm_2"),
            f"{theirs}_mlp_dense_1": pieces.dense(f"{ours}/mlp/expand"),
            f"{theirs}_mlp_dense_2": pieces.dense(f"{ours}/mlp/reduce"),
        }
        if pieces.config.layer_scale is not None:
            flat[f"{theirs}_attn_gamma"] = {"weight": pieces[f"{ours}/scale_1/gamma"]}
            flat[f"{theirs}_mlp_gamma"] = {"weight": pieces[f"{ours}/scale_2/gamma"]}
    return {name: {name: arrays} for name, arrays in flat.items()} | {name: {} for name in empty}


def full_config(**out_ln: Any) -> dict[str, Any]:
    return {
        "class_name": "Functional",
        "config": {
            "layers": [
                {
                    "class_name": "InputLayer",
                    "config": {"name": "input_1", "batch_input_shape": [None, 15, 14, 3]},
                },
                {
                    "class_name": "Reshape",
                    "config": {"name": "reshape", "target_shape": [-1, 24]},
                },
                {
                    "class_name": "Reshape",
                    "config": {"name": "reshape_1", "target_shape": [-1, 4, 6]},
                },
                {"class_name": "Activation", "config": {"name": "block0_mlp_gelu"}},
                {"class_name": "LayerNormalization", "config": {"name": "out_ln", **out_ln}},
            ]
        },
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_scale": 0.1, "num_layers": 11},
        {"prefix_position": False},  # FlexiViT
        {"pre_norm": True, "patch_bias": False},  # MetaTransformer
        {"class_token": False, "pooling": "gap", "qkv_bias": False},
        {"classes": 0},
    ],
    ids=str,
)
def test_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    path = write_keras_2(tmp_path / "m.h5", layers_of(model), scope=":0")
    assert_same_weights(path, model)


def test_full_model_tells_its_whole_configuration(tmp_path: Path) -> None:
    model = source_model()
    path = write_keras_2(tmp_path / "m.h5", layers_of(model), full_config(epsilon=1e-5))
    assert_same_weights(path, model)
    config = config_of(read_checkpoint(path))
    assert (config.num_heads, config.image_size, config.epsilon) == (4, (15, 14), 1e-5)
    assert (config.gelu, config.pooling, config.grid) == ("exact", "token", (5, 7))
    assert config.position_interpolation == "bilinear"


def test_weights_tell_the_pooling_by_the_names_of_layers(tmp_path: Path) -> None:
    model = source_model()
    empty = ("block0_mlp_gelu", "tf.math.reduce_mean_1")  # EVA
    inferred = read_checkpoint(write_keras_2(tmp_path / "m.h5", layers_of(model, empty))).inferred
    assert (inferred["pooling"], inferred["norm_after_pooling"]) == ("gap", True)
    empty = (*empty, "tf.concat")  # DINOv2, whose classifier takes both
    inferred = read_checkpoint(write_keras_2(tmp_path / "d.h5", layers_of(model, empty))).inferred
    assert (inferred["pooling"], "norm_after_pooling" in inferred) == ("token", False)


def test_variables_of_other_releases(tmp_path: Path) -> None:
    model = source_model(layer_scale=0.1)
    layers = layers_of(model)
    for name in ("cls_token", "positional_embedding", "block1_attn_gamma"):
        layers[name] = {name: {"w": next(iter(layers[name][name].values()))}}
    assert_same_weights(write_keras_2(tmp_path / "m.h5", layers), model)


@pytest.mark.parametrize(
    ("names", "gelu"), [(["block0_mlp_gelu"], "exact"), (["tf.nn.gelu_3"], "tanh"), ([], None)]
)
def test_read_layers_tells_the_gelu(names: list[str], gelu: str | None) -> None:
    assert read_layers([{"name": name} for name in names]).get("gelu") == gelu


def test_another_activation_is_refused(tmp_path: Path) -> None:
    path = write_keras_2(tmp_path / "m.h5", layers_of(source_model(), ("tf.math.sigmoid",)))
    with pytest.raises(
        ValueError,
        match=r"must be built with activation='gelu' or 'gelu/approximate'\. Received: a model",
    ):
        read_checkpoint(path)


def test_relatives_of_another_architecture_are_refused(tmp_path: Path) -> None:
    model = source_model()
    path = write_keras_2(tmp_path / "m.h5", layers_of(model))
    with h5py.File(path, "a") as file:
        file["block0_attn_query_bias/bias:0"] = np.zeros(24)  # EVA02
    with pytest.raises(
        ValueError,
        match=r"keras_cv_attention_models .* Unknown: block0_attn_query_bias/bias",
    ):
        load_weights(model, path)
