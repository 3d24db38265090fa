from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from keras_vit.weights import read_checkpoint
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.containers import formats
from keras_vit.weights.containers.guards import MAX_JSON_BYTES
from keras_vit.weights.foreign_keras import complete, is_ours, read_layers, read_tensors
from keras_vit.weights.infer_config import config_of
from tests.helpers import tiny_model
from tests.weights.dialects.test_vit_keras import full_config, version_2_numbered
from tests.weights.foreign_files import assert_same_weights, source_model, write_keras_3
from tests.weights.keras_hub_files import backbone_of, head_of


def write_archive(path: Path, weights: Path, config: Any) -> Path:
    """A `.keras` file; nothing is built for it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        archive.write(weights, "model.weights.h5")
    return path


@pytest.fixture
def model() -> keras.Model:
    return source_model()


@pytest.fixture
def weights(model: keras.Model, tmp_path: Path) -> Path:
    return write_keras_3(tmp_path / "m.weights.h5", version_2_numbered(model))


def test_is_ours(weights: Path, tmp_path: Path) -> None:
    ours = tiny_model()
    ours.save(tmp_path / "ours.keras")
    ours.save_weights(tmp_path / "ours.weights.h5")
    foreign = write_archive(tmp_path / "m.keras", weights, full_config())
    assert is_ours(tmp_path / "ours.keras", "keras")
    assert is_ours(tmp_path / "ours.weights.h5", "h5")
    assert not is_ours(foreign, "keras")
    assert not is_ours(weights, "h5")


def test_is_ours_looks_at_layers_alone(weights: Path, tmp_path: Path) -> None:
    config = {**full_config(), "note": "keras_vit>ImageContract"}
    assert not is_ours(write_archive(tmp_path / "m.keras", weights, config), "keras")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("layers", (10**9, 10**9), "f4", chunks=(3, 5))
    assert not is_ours(tmp_path / "m.h5", "h5")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/patch_encoder"] = h5py.ExternalLink("nowhere.h5", "/")
    assert is_ours(tmp_path / "m.h5", "h5")  # not even looked for; the reader refuses it


def test_an_over_large_configuration_is_refused(weights: Path, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m.keras", weights, "{}".ljust(MAX_JSON_BYTES + 1))
    with pytest.raises(
        ValueError,
        match=r"config\.json has 16,777,217 bytes \(limit: 16,777,216",
    ):
        read_layers(path, "keras")


def test_model_of_vit_keras_with_its_lambda_layers(
    model: keras.Model, weights: Path, tmp_path: Path
) -> None:
    path = write_archive(tmp_path / "m.keras", weights, full_config("batch_shape"))
    assert_same_weights(path, model)
    config = config_of(read_checkpoint(path))
    assert (config.num_heads, config.image_size, config.grid) == (4, (15, 14), (5, 7))


def test_model_of_keras_hub(model: keras.Model, tmp_path: Path) -> None:
    layers = {f"vi_t_backbone/{name}": a for name, a in backbone_of(model).items()}
    weights = write_keras_3(tmp_path / "m.weights.h5", layers | head_of(model))
    backbone = {"image_shape": [15, 14, 3], "layer_norm_epsilon": 1e-5}
    task = {
        "class_name": "ViTImageClassifier",
        "config": {
            "pooling": "token",
            "backbone": {"class_name": "ViTBackbone", "config": backbone},
        },
    }
    path = write_archive(tmp_path / "m.keras", weights, task)
    assert_same_weights(path, model)
    config = config_of(read_checkpoint(path))
    assert (config.epsilon, config.image_size, config.num_heads) == (1e-5, (15, 14), 4)


def test_read_tensors_names_them_by_layer_and_number(weights: Path) -> None:
    tensors = read_tensors(weights)
    assert tensors["head/1"].shape == (11,)
    assert tensors["Transformer_encoderblock_1/MultiHeadDotProductAttention_1/key/0"].shape == (
        *(24, 24),
    )


def test_archive_of_keras_2_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["layers/conv2d/vars/0"] = np.zeros(3)  # without the name of the layer
    path = write_archive(tmp_path / "m.keras", tmp_path / "w.h5", full_config())
    message = (
        rf"{path}/model.weights.h5 is not a \.weights\.h5 file written by `model\.save_weights`"
    )
    with pytest.raises(ValueError, match=message):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"config": {"layers": [3]}}', '{"config": []}', "[" * 100_000],
    ids=lambda content: content[:9],
)
def test_damaged_configuration(content: str, weights: Path, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m.keras", weights, content)
    with pytest.raises(ValueError, match=r"m\.keras is truncated or damaged"):
        read_checkpoint(path)


def test_another_model_of_keras_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")])
    for name in ("m.keras", "m.weights.h5"):
        (model.save if name == "m.keras" else model.save_weights)(tmp_path / name)
        with pytest.raises(
            ValueError, match=r"must be a Vision Transformer with tensor names .*, vit-keras, "
        ):
            read_checkpoint(tmp_path / name)


def test_read_layers_of_a_legacy_file(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file.create_group("tf.split")
    assert read_layers(path, "legacy_h5") == [{"name": "tf.split"}]
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(full_config())
    names = [layer["name"] for layer in read_layers(path, "legacy_h5")]
    assert names == ["vit-b16", "input", "Transformer/encoderblock_0", "ExtractToken"]
    assert formats.format_of(path) == "legacy_h5"


def test_an_over_large_model_config_of_keras_2_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"config": {"name": "a" * 50}})
    monkeypatch.setattr("keras_vit.weights.containers.guards.MAX_JSON_BYTES", 50)
    with pytest.raises(ValueError, match=r"too large: model_config has over 50 bytes"):
        read_layers(tmp_path / "m.h5", "legacy_h5")


def test_read_layers_of_a_nested_model(tmp_path: Path) -> None:
    outer = {"class_name": "Sequential", "config": {"name": "s", "layers": [full_config()]}}
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(outer)
    layers = read_layers(tmp_path / "m.h5", "legacy_h5")
    assert complete(Checkpoint("m.h5", {}, {}), layers).inferred == {"num_heads": 4}
