from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit.models import build, config_of, preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import convert, read_checkpoint, save_weights
from keras_vit.weights.containers.npz import read_npz
from keras_vit.weights.containers.safetensors import read_safetensors
from keras_vit.zoo import ViTTi16
from tests.helpers import randomise, tiny_config, weights_of
from tests.weights.files import SQUARE, official_tensors, save, save_old_h5

LABELS = tuple(f"kind {letter}" for letter in "abcdefghijk")
PREPROCESSING = Preprocessing(size=15, crop_fraction=0.7, std=(0.1, 0.2, 0.3), class_names=LABELS)
# What every format has a place for.
FIELDS = {"image_size": (15, 15), "patch_size": 3}
NPZ = "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
TIMM = "vit_tiny_patch16_224.augreg_in21k_ft_in1k.safetensors"


def model_for(**changes: Any) -> keras.Model:
    return randomise(build(tiny_config(**FIELDS | changes), preprocessing=PREPROCESSING))


def assert_same_tensors(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert (tensor.dtype, tensor.shape) == (expected[name].dtype, expected[name].shape), name
        assert tensor.tobytes() == expected[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The format")
def test_a_chain_of_all_formats_keeps_every_bit(tmp_path: Path) -> None:
    model = model_for()
    save_weights(model, tmp_path / "0.keras")
    chain = ["0.keras", "1.safetensors", "2", "3.safetensors", "4.weights.h5", "5.npz", "6.keras"]
    formats = [None, "timm", None, "torchvision", None, None, None]
    for source, target, format in zip(chain, chain[1:], formats[1:], strict=False):
        known = {"patch_size": 3, "num_heads": 4} if source.endswith(".h5") else {}
        convert(tmp_path / source, tmp_path / target, format, **known)
    last = keras.saving.load_model(tmp_path / "6.keras")
    for name, weight in weights_of(last).items():
        np.testing.assert_array_equal(weight, weights_of(model)[name], err_msg=name)
    assert config_of(last) == config_of(model)  # the official file tells this much, but no labels
    save_weights(model, tmp_path / "direct.npz")
    assert (tmp_path / "5.npz").read_bytes() == (tmp_path / "direct.npz").read_bytes()
    save_weights(model, tmp_path / "direct.safetensors", "torchvision")
    direct = (tmp_path / "direct.safetensors").read_bytes()
    assert (tmp_path / "3.safetensors").read_bytes() == direct


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize("target", ["m.keras", "m.safetensors", "m"])
def test_labels_and_preprocessing_are_kept(target: str, tmp_path: Path) -> None:
    save_weights(model_for(), tmp_path / "source.keras")
    format = "timm" if target == "m.safetensors" else None
    convert(tmp_path / "source.keras", tmp_path / target, format)
    assert read_checkpoint(tmp_path / target).preprocessing == PREPROCESSING
    if target == "m.keras":
        assert preprocessing_of(keras.saving.load_model(tmp_path / target)) == PREPROCESSING


def test_a_source_that_carries_none_gets_the_usual_preprocessing(tmp_path: Path) -> None:
    save(tmp_path, official_tensors(SQUARE))
    convert(tmp_path / "official.npz", tmp_path / "m.keras")
    preprocessing = preprocessing_of(keras.saving.load_model(tmp_path / "m.keras"))
    assert preprocessing == Preprocessing(size=SQUARE.image_size, crop_fraction=0.9)


def test_official_file_to_timm_and_back(tmp_path: Path) -> None:
    tensors = official_tensors(SQUARE)
    save(tmp_path, tensors)
    with pytest.warns(UserWarning, match="gelu='tanh'.*gelu_tanh") as record:
        convert(tmp_path / "official.npz", tmp_path / "m.safetensors", "timm")
    assert record[-1].filename == __file__
    theirs = read_safetensors(tmp_path / "m.safetensors")
    attention = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"
    key = tensors[f"{attention}/key/kernel"].reshape(24, 24)
    np.testing.assert_array_equal(theirs["blocks.1.attn.qkv.weight"][24:48], key.T)
    kernel = tensors["embedding/kernel"].transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(theirs["patch_embed.proj.weight"], kernel)
    convert(tmp_path / "m.safetensors", tmp_path / "back.npz")
    assert_same_tensors(read_npz(tmp_path / "back.npz"), tensors)


def test_weights_h5_takes_channels_from_the_patch_size(tmp_path: Path) -> None:
    model = model_for(channels=2)
    save_old_h5(model, tmp_path / "m.weights.h5")
    convert(tmp_path / "m.weights.h5", tmp_path / "m.npz", patch_size=3, num_heads=4)
    assert read_npz(tmp_path / "m.npz")["embedding/kernel"].shape == (3, 3, 2, 24)


def test_hybrid_weights_h5(tmp_path: Path) -> None:
    config = tiny_config(stem_blocks=(1,), stem_width=32, image_size=(12, 8), channels=2)
    model = randomise(build(config))
    save_old_h5(model, tmp_path / "m.weights.h5")
    for target in ("m.npz", "m.keras"):
        convert(tmp_path / "m.weights.h5", tmp_path / target, patch_size=(3, 2), num_heads=4)
    save_weights(model, tmp_path / "direct.npz")
    assert (tmp_path / "m.npz").read_bytes() == (tmp_path / "direct.npz").read_bytes()
    assert keras.saving.load_model(tmp_path / "m.keras").input_shape == (None, 12, 8, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": (None, None), "position_grid": (5, 7)},
        {"image_size": (15, 15), "position_grid": (4, 7)},
        {"image_size": (6, 24)},  # 2 x 8 patches, as many as 4 x 4
        {"position_embedding": "sincos_2d"},
        {"position_embedding": "none"},
    ],
    ids=str,
)
def test_grids_are_kept(changes: dict[str, Any], tmp_path: Path) -> None:
    model = model_for(**changes)
    save_weights(model, tmp_path / "a.safetensors", "timm")
    convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "timm")
    convert(tmp_path / "b.safetensors", tmp_path / "c.keras")
    again = keras.saving.load_model(tmp_path / "c.keras")
    assert config_of(again) == config_of(model)
    assert preprocessing_of(again) == PREPROCESSING
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, weights_of(model)[name], err_msg=name)


@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize(
    ("source", "known", "message"),
    [
        ("m.npz", {"num_heads": 3}, "m.npz must match its .* num_heads=4 instead of 3"),
        ("m.npz", {"patch_size": 5}, r"patch_size=\(3, 3\) instead of \(5, 5\)"),
        ("m.npz", {"image_size": (18, 18)}, r"positions of shape \(26, 24\) for a grid of \(6, 6"),
        ("m.npz", {"classes": 7}, "classes=11 instead of 7"),
        (
            "plain.safetensors",
            {},
            "plain.safetensors does not contain num_heads: pass num_heads=...",
        ),
        ("plain.safetensors", {"num_heads": 5}, "`hidden_size` must be a multiple of `num_heads`"),
        ("m.weights.h5", {"num_heads": 4}, "does not contain patch_size: pass patch_size"),
        (
            "m.weights.h5",
            {"num_heads": 4, "patch_size": 4},
            "must match its .* 27 values per patch instead of 16",
        ),
    ],
)
def test_what_contradicts_is_refused(
    source: str, known: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "sources"
    model = model_for()
    save_weights(model, folder / "m.npz")
    save_old_h5(model, folder / "m.weights.h5")
    save_weights(model, folder / "m.safetensors", "timm")
    save_file(read_safetensors(folder / "m.safetensors"), folder / "plain.safetensors")
    with pytest.raises(ValueError, match=message):
        convert(folder / source, tmp_path / "m", **known)
    assert [path.name for path in tmp_path.iterdir()] == ["sources"]


def test_the_file_of_a_source_folder_is_never_replaced(tmp_path: Path) -> None:
    config = SQUARE.replace(gelu="tanh", epsilon=1e-12, patch_size=2, image_size=(10, 10))
    build(config).save(tmp_path / "m.keras")
    convert(tmp_path / "m.keras", tmp_path / "m", "huggingface")
    with pytest.raises(ValueError, match="`target` must differ from `source`"):
        convert(tmp_path / "m", tmp_path / "m" / "model.safetensors", "timm", overwrite=True)


def test_a_name_of_published_weights_is_looked_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Did you mean 'imagenet'"):
        convert("imagenett", tmp_path / "m.npz", model="ViTB16")


def test_the_target_is_checked_before_the_source_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`format` must be one of"):
        convert(tmp_path / "nowhere.npz", tmp_path / "m.safetensors")


@pytest.mark.filterwarnings("ignore:The format")
def test_published_files_of_both_dialects_are_each_other(test_data: Path, tmp_path: Path) -> None:
    npz, timm = test_data / "weights" / NPZ, test_data / "weights" / TIMM
    convert(npz, tmp_path / "m.safetensors", "timm")
    assert_same_tensors(read_safetensors(tmp_path / "m.safetensors"), read_safetensors(timm))
    for source in (timm, tmp_path / "m.safetensors"):
        convert(source, tmp_path / "m.npz", overwrite=True)
        assert_same_tensors(read_npz(tmp_path / "m.npz"), read_npz(npz))


# Top-1 of 200 photographs, as measured; the same with both variants of GELU.
ACCURACY = {"tanh": 0.885, "exact": 0.885}


@pytest.mark.slow
@pytest.mark.tensorflow
def test_published_files_classify_alike(test_data: Path, tmp_path: Path) -> None:
    images, classes = photographs(test_data / "data" / "imagenet_sample")
    official = ViTTi16(weights=test_data / "weights" / NPZ)
    timm = test_data / "weights" / TIMM
    told = ViTTi16(weights=timm, overrides={"gelu": "tanh"})
    for name, weight in weights_of(told).items():
        np.testing.assert_array_equal(weight, weights_of(official)[name], err_msg=name)
    expected = official.predict(images, verbose=0)
    np.testing.assert_array_equal(told.predict(images, verbose=0), expected)
    exact = ViTTi16(weights=timm).predict(images, verbose=0)  # as timm itself takes the file
    found = {
        "tanh": np.mean(expected.argmax(-1) == classes),
        "exact": np.mean(exact.argmax(-1) == classes),
    }
    assert found == pytest.approx(ACCURACY, abs=0.0051), found


def photographs(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    import tensorflow as tf

    from keras_vit.data.decode_and_resize import prepare

    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    preprocessing = Preprocessing()
    images = [prepare(tf.io.read_file(str(folder / row["file"])), preprocessing) for row in rows]
    return np.stack(images), np.array([int(row["class_index"]) for row in rows])


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_nothing_that_exists_is_replaced_unasked(suffix: str, tmp_path: Path) -> None:
    source, target = tmp_path / "m.keras", tmp_path / f"m{suffix}"
    save_weights(model_for(gelu="tanh"), source)
    target.write_bytes(b"mine")
    format = "timm" if suffix == ".safetensors" else None
    with pytest.raises(ValueError, match=r"`target` must not exist: .*`--overwrite`"):
        convert(source, target, format)
    assert target.read_bytes() == b"mine"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of timm's GELU
        convert(source, target, format, overwrite=True)
    assert read_checkpoint(target).inferred["num_layers"] == 2


def test_the_source_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    save_weights(model_for(), path)
    before = path.read_bytes()
    (tmp_path / "link.keras").symlink_to(path)
    for target in (path, tmp_path / "link.keras"):
        with pytest.raises(ValueError, match="must differ from `source`,"):
            convert(path, target, overwrite=True)
    assert path.read_bytes() == before
