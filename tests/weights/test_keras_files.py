from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from keras_vit.models import build, config_of, preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import keras_files, load_weights
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.resolve import read_checkpoint
from keras_vit.zoo import ViTMicro4
from tests.helpers import tiny_config, tiny_model

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no class token": {"class_token": False, "pooling": "gap"},
    "no positions": {"position_embedding": "none"},
    "neither": {"position_embedding": "none", "class_token": False, "pooling": "gap"},
    "learned_2d": {"position_embedding": "learned_2d"},
    "learned_2d, no class token": {
        "position_embedding": "learned_2d",
        "class_token": False,
        "pooling": "gap",
    },
    "sincos_2d": {"position_embedding": "sincos_2d"},
    "map": {"pooling": "map"},
    "no qkv bias": {"qkv_bias": False},
    "representation": {"representation_size": 17},
    "backbone": {"classes": 0},
    "twelve layers": {"num_layers": 12},
}


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_read_names_every_variable(changes: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    model = tiny_model(**changes)
    path = tmp_path / f"m{suffix}"
    if suffix == ".keras":
        model.save(path)
        checkpoint = keras_files.read_keras(path)
    else:
        model.save_weights(path)
        checkpoint = keras_files.read_h5(path)
    expected = {name: np.asarray(v) for name, v in variables_of(model).items()}
    assert checkpoint.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], tensor)
    assert checkpoint.source == str(path)


def test_read_h5_of_a_strangers_model(tmp_path: Path) -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="alien")])
    stranger.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match=r"from a model of keras_vit. Received: the layers alien"):
        keras_files.read_h5(tmp_path / "m.weights.h5")


def test_read_keras_brings_configuration_and_preprocessing(tmp_path: Path) -> None:
    preprocessing = Preprocessing(size=(15, 14), class_names=tuple("abcdefghijk"))
    config = tiny_config(image_size=(None, None), position_grid=(5, 7), gelu="exact", epsilon=1e-5)
    build(config, preprocessing=preprocessing).save(tmp_path / "m.keras")
    checkpoint = keras_files.read_keras(tmp_path / "m.keras")
    assert checkpoint.preprocessing == preprocessing
    assert checkpoint.inferred == config.get_config()
    told = ', "exif_orientation": true'
    earlier = changed(tmp_path / "m.keras", tmp_path / "earlier.keras", told, "")
    assert keras_files.read_keras(earlier).preprocessing == dataclasses.replace(
        preprocessing, exif_orientation=False
    )
    assert not preprocessing_of(keras.saving.load_model(earlier)).exif_orientation


def test_read_keras_refuses_code(tmp_path: Path) -> None:
    images = keras.Input((15, 14, 3))
    model = tiny_model()
    keras.Model(images, keras.layers.Lambda(lambda x: 2 * x)(model(images))).save(
        tmp_path / "m.keras"
    )
    with pytest.raises(ValueError, match=r"(?s)Lambda.*unsafe"):
        keras_files.read_keras(tmp_path / "m.keras")


def test_read_keras_of_a_half_precision_model_is_float32(tmp_path: Path) -> None:
    model = tiny_model(dtype="mixed_bfloat16")
    model.save(tmp_path / "m.keras")
    checkpoint = keras_files.read_keras(tmp_path / "m.keras")
    assert {tensor.dtype.name for tensor in checkpoint.tensors.values()} == {"float32"}
    assert checkpoint.inferred["num_heads"] == config_of(model).num_heads


def changed(source: Path, target: Path, old: str, new: str) -> Path:
    """A copy of a `.keras` file with another configuration."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                assert old.encode() in content
                content = content.replace(old.encode(), new.encode())
            copy.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"hidden_size": 24', '"hidden_size": 24000000', "hidden_size=24 instead of 24000000"),
        ('"num_layers": 2', '"num_layers": "2"', "wrong type: num_layers"),
        ('"image_size": [15, 14]', '"image_size": [15000, 14000]', "a grid of "),
        ('"crop_fraction": 1.0', '"crop_fraction": 3.0', "`crop_fraction` must be in"),
        ('"architecture": {', '"arch": {', "ViTConfig is stored as NoneType"),
    ],
)
def test_read_keras_checks_before_anything_is_built(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model().save(tmp_path / "m.keras")
    monkeypatch.setattr(keras.saving, "load_model", None)
    path = changed(tmp_path / "m.keras", tmp_path / "lie.keras", old, new)
    with pytest.raises(
        ValueError, match=rf"'keras_vit' of .*lie\.keras must be readable.*{message}"
    ):
        keras_files.read_keras(path)


def test_read_keras_of_a_model_inside_another(tmp_path: Path) -> None:
    images = keras.Input((15, 14, 3))
    model = tiny_model()
    outer = keras.Model(images, keras.layers.Dense(7, name="mine")(model(images)))
    outer.save(tmp_path / "m.keras")
    checkpoint = keras_files.read_keras(tmp_path / "m.keras")
    expected = {name: np.asarray(v) for name, v in variables_of(outer).items()}
    assert "mine/kernel" in expected
    assert checkpoint.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], tensor)
    assert checkpoint.inferred["num_heads"] == config_of(model).num_heads


@pytest.mark.parametrize("name", ["m.h5", "m.weights.h5"])
def test_h5_of_a_model_inside_another_names_the_files_that_are_read(
    name: str, tmp_path: Path
) -> None:
    images = keras.Input((15, 14, 3))
    model = keras.Model(images, keras.layers.Dense(2)(tiny_model(classes=0)(images)))
    (model.save_weights if "weights" in name else model.save)(tmp_path / name)
    message = r"`weights` of a keras_vit model must be a .keras file.* Received: weights='.*h5'"
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / name)


def test_h5_in_the_older_format_names_the_files_that_are_read(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "m.h5")
    with pytest.raises(ValueError, match=r"save its keras_vit model as .keras"):
        read_checkpoint(tmp_path / "m.h5")


def test_read_keras_of_two_models_in_one(tmp_path: Path) -> None:
    images = keras.Input((15, 14, 3))
    one, two = tiny_model(), keras.models.clone_model(tiny_model())
    two.name = "other"
    keras.Model(images, [one(images), two(images)]).save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"not a file of one keras_vit model: it contains 2\.$"):
        keras_files.read_keras(tmp_path / "m.keras")


def test_read_keras_of_tensors_of_odd_shapes(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as archive:
        config = archive.read("config.json")
        weights = archive.extract("model.weights.h5", tmp_path)
    with h5py.File(weights, "a") as file:
        del file["layers/patch_encoder/vars/class_token"]
        file["layers/patch_encoder/vars/class_token"] = np.zeros(5)
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", config)
        archive.write(weights, "model.weights.h5")
    with pytest.raises(ValueError, match=r"m\.keras is truncated or damaged \(.*index"):
        keras_files.read_keras(tmp_path / "m.keras")


def test_h5_with_a_layer_that_is_not_ours(tmp_path: Path) -> None:
    """A batch norm has four variables; the loader lists what it does not know."""
    model = tiny_model(classes=0)
    normal = keras.layers.BatchNormalization(name="mine")(model.output)
    keras.Model(model.input, normal).save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match="Missing in the model: mine/"):
        load_weights(tiny_model(classes=0), tmp_path / "m.weights.h5")


def test_a_file_of_other_classes_than_the_default_is_refused(tmp_path: Path) -> None:
    build(ViTMicro4.config.replace(classes=3)).save(tmp_path / "own.keras")
    with pytest.raises(
        ValueError, match=r"`classes` must be 3 with .*own\.keras'\. .* Received: classes=1000"
    ):
        ViTMicro4(weights=tmp_path / "own.keras")
    assert ViTMicro4(weights=tmp_path / "own.keras", classes=3).output_shape == (None, 3)
    assert ViTMicro4(weights=tmp_path / "own.keras", include_top=False).output_shape[-1] == 96
    with pytest.warns(UserWarning, match="is new"):
        ViTMicro4(weights=tmp_path / "own.keras", reset_head=True)
