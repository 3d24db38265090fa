from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.infer_config import config_of
from tests.helpers import normal, tiny_model
from tests.weights.foreign_files import (
    Layers,
    Pieces,
    assert_same_weights,
    numbered,
    source_model,
    write_keras_2,
    write_keras_3,
)

VARIANTS = [{}, {"representation_size": 17}, {"classes": 0}, {"num_layers": 11, "channels": 4}]


def version_1(model: keras.Model) -> dict[str, Layers]:
    """vit_keras/vit.py and layers.py, release 0.1.2: slashes in names, no scope for the MLP."""
    pieces = Pieces(model)
    layers: dict[str, Layers] = {
        "embedding": {
            "embedding": pieces.dense("patch_encoder/projection") | {"kernel": pieces.patch_kernel}
        },
        "class_token": {"class_token": {"cls": pieces["patch_encoder/class_token"]}},
        "Transformer/posembed_input": {
            "Transformer/posembed_input": {"pos_embedding": pieces.positions}
        },
        "Transformer/encoder_norm": {"Transformer/encoder_norm": pieces.norm("encoder_norm")},
    }
    for index in range(pieces.config.num_layers):
        ours, theirs = f"block_{index:02d}", f"Transformer/encoderblock_{index}"
        attention = f"{theirs}/MultiHeadDotProductAttention_1"
        layers[theirs] = {
            f"{theirs}/LayerNorm_0": pieces.norm(f"{ours}/norm_1"),
            **{f"{attention}/{name}": arrays for name, arrays in pieces.qkv(ours).items()},
            f"{attention}/out": pieces.dense(f"{ours}/attention/out"),
            f"{theirs}/LayerNorm_2": pieces.norm(f"{ours}/norm_2"),
            f"{theirs}/Dense_0": pieces.dense(f"{ours}/mlp/expand"),
            f"{theirs}/Dense_1": pieces.dense(f"{ours}/mlp/reduce"),
        }
    for name in ("pre_logits", "head"):
        if f"{name}/kernel" in pieces:
            layers[name] = {name: pieces.dense(name)}
    return layers


def renamed(name: str) -> str:
    """Release 0.2.0 has underscores, and the scope of the MLP."""
    name = name.replace("Transformer/", "Transformer_")
    block, found, dense = name.partition("/Dense_")
    return f"{block}/MlpBlock_3/{block}_Dense_{dense}" if found else name


def version_2(model: keras.Model) -> dict[str, Layers]:
    return {
        renamed(layer): {renamed(scopes): arrays for scopes, arrays in inner.items()}
        for layer, inner in version_1(model).items()
    }


def version_2_numbered(model: keras.Model) -> Layers:
    layers = {
        scopes: arrays for inner in version_2(model).values() for scopes, arrays in inner.items()
    }
    return numbered(layers)


def full_config(shape: str = "batch_input_shape") -> dict[str, Any]:
    """What a full model says of itself; the code of its Lambda would stop the test."""
    return {
        "class_name": "Functional",
        "config": {
            "name": "vit-b16",
            "layers": [
                {"class_name": "InputLayer", "config": {shape: [None, 15, 14, 3], "name": "input"}},
                {
                    "class_name": "Custom>TransformerBlock",
                    "config": {"name": "Transformer/encoderblock_0", "num_heads": 4},
                },
                {"class_name": "Lambda", "config": {"name": "ExtractToken", "function": "4wEAAA"}},
            ],
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_weights_of_version_1(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    path = write_keras_2(tmp_path / "m.h5", version_1(model), scope=":0")
    assert_same_weights(path, model)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_weights_of_version_2(changes: dict[str, Any], tmp_path: Path) -> None:
    model = source_model(**changes)
    assert_same_weights(write_keras_2(tmp_path / "m.h5", version_2(model)), model)
    path = write_keras_3(tmp_path / "m.weights.h5", version_2_numbered(model))
    assert_same_weights(path, model)


@pytest.mark.parametrize("version", [1, 2])
def test_full_model_tells_its_whole_configuration(version: int, tmp_path: Path) -> None:
    model = source_model()
    layers = version_1(model) if version == 1 else version_2(model)
    path = write_keras_2(tmp_path / "m.h5", layers, full_config())
    with h5py.File(path, "a") as file:
        file["optimizer_weights/Adam/m/head/kernel:0"] = np.zeros((24, 11))
        file["optimizer_weights/Adam/iteration:0"] = 3
    assert_same_weights(path, model)
    checkpoint = read_checkpoint(path)
    assert len(checkpoint.ignored) == 2
    config = config_of(checkpoint)
    assert (config.num_heads, config.image_size, config.patch_size) == (4, (15, 14), (3, 2))
    assert (config.gelu, config.epsilon, config.classes) == ("exact", 1e-6, 11)
    assert (config.grid, config.prefix_position) == ((5, 7), True)
    assert config.position_interpolation == "bilinear_aligned"


def test_weights_alone_do_not_tell_a_grid_by_chance(tmp_path: Path) -> None:
    path = write_keras_2(tmp_path / "m.h5", version_1(source_model()))  # 36 positions are no 6 x 6
    inferred = read_checkpoint(path).inferred
    assert (inferred["position_grid"], inferred["prefix_position"]) == (None, True)


def nested(model: keras.Model, own: Layers) -> dict[str, Layers]:
    """Keras 2 leaves the names of the inner layers out where they stand twice."""
    inner = {scopes: a for layers in version_1(model).values() for scopes, a in layers.items()}
    return {"vit-b16": inner, **{name: {name: arrays} for name, arrays in own.items()}}


def test_a_single_dense_layer_behind_the_model_is_the_classifier(tmp_path: Path) -> None:
    own = {"dense": {"kernel": normal(24, 11), "bias": normal(11, seed=4)}}
    headless, model = source_model(classes=0), tiny_model()
    model.set_weights([*headless.get_weights(), *own["dense"].values()])
    assert_same_weights(write_keras_2(tmp_path / "m.h5", nested(headless, own)), model)
    flat = version_1(headless) | {"dense": {"dense": own["dense"]}}
    assert_same_weights(write_keras_2(tmp_path / "flat.h5", flat), model)


def test_more_layers_behind_a_nested_model_are_left_out(tmp_path: Path) -> None:
    own = {"dense": {"kernel": normal(24, 11), "bias": normal(11)}, "bn": {"gamma": normal(11)}}
    path = write_keras_2(tmp_path / "m.h5", nested(source_model(classes=0), own))
    model = tiny_model()
    report = load_weights(model, path, report=True)
    assert sorted(report.of("left")) == ["bn/bn/gamma", "dense/dense/bias", "dense/dense/kernel"]
    assert report.of("reset") == ("head/kernel", "head/bias")
    flat = version_1(source_model(classes=0)) | {name: {name: a} for name, a in own.items()}
    with pytest.raises(ValueError, match=r"Unknown: bn/bn/gamma, dense/dense/bias, .*\."):
        load_weights(model, write_keras_2(tmp_path / "flat.h5", flat))


def test_message_names_what_is_missing(tmp_path: Path) -> None:
    layers = version_1(source_model())
    del layers["Transformer/encoderblock_1"]["Transformer/encoderblock_1/Dense_1"]["bias"]
    path = write_keras_2(tmp_path / "m.h5", layers)
    with pytest.raises(
        ValueError,
        match=r"not a complete vit-keras .* Missing: Transformer/encoderblock_1/Dense_1/bias\. ",
    ):
        read_checkpoint(path)
