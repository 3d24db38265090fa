from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import build
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import load_weights, read_checkpoint, save_weights
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.containers.safetensors import read_safetensors, write_safetensors
from keras_vit.weights.dialects import DIALECTS
from tests.helpers import randomise, tiny_config

LABELS = tuple(f"kind {letter}" for letter in "abcdefghijk")
PREPROCESSING = Preprocessing(size=15, crop_fraction=0.77, class_names=LABELS, antialias=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of ours, as the transformers library reads it."""
    config = tiny_config(image_size=(15, 15), patch_size=3, epsilon=1e-4)
    model = randomise(build(config, preprocessing=PREPROCESSING))
    with pytest.warns(UserWarning, match="antialias=False"):
        save_weights(model, tmp_path / "m")
    return tmp_path / "m"


def strip(folder: Path) -> Path:
    """Takes our metadata away, as the library itself writes none."""
    path = folder / "model.safetensors"
    write_safetensors(path, read_safetensors(path), {"format": "pt"})
    return folder


def change(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | fields))


def test_a_folder_of_ours_keeps_everything(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.preprocessing == PREPROCESSING
    assert checkpoint.inferred["image_size"] == (15, 15)


def test_a_folder_of_theirs_tells_what_json_can(folder: Path) -> None:
    checkpoint = read_checkpoint(strip(folder))
    told = ("num_heads", "epsilon", "gelu")
    assert [checkpoint.inferred[name] for name in told] == [4, 1e-4, "tanh"]
    assert "image_size" not in checkpoint.inferred
    found = checkpoint.preprocessing
    assert found.class_names == LABELS
    assert found.crop_fraction == 15 / 19  # int(15 / 0.77) pixels
    assert found == dataclasses.replace(PREPROCESSING, crop_fraction=15 / 19, antialias=True)


def test_what_is_changed_beside_our_metadata_goes_first(folder: Path) -> None:
    change(folder / "config.json", layer_norm_eps=1e-3, id2label=dict(enumerate("ABCDEFGHIJK")))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.inferred["epsilon"] == 1e-3
    assert checkpoint.preprocessing == dataclasses.replace(
        PREPROCESSING, class_names=tuple("ABCDEFGHIJK")
    )
    change(folder / "preprocessor_config.json", resample=2)
    found = read_checkpoint(folder).preprocessing
    assert (found.interpolation, found.crop_fraction) == ("bilinear", 15 / 19)


@pytest.mark.parametrize("name", ["model.safetensors", "vit.bin"])
def test_configurations_beside_a_file_are_read(name: str, folder: Path) -> None:
    path = (strip(folder) / "model.safetensors").rename(folder / name)
    checkpoint = read_checkpoint(path)
    assert checkpoint.notes == {}
    assert (checkpoint.inferred["num_heads"], checkpoint.inferred["epsilon"]) == (4, 1e-4)
    assert checkpoint.preprocessing.class_names == LABELS
    assert checkpoint.preprocessing.crop_fraction == 15 / 19


def test_preprocessing_is_assumed_without_its_configuration(folder: Path, tmp_path: Path) -> None:
    told = (strip(folder) / "preprocessor_config.json").rename(tmp_path / "told.json")
    source = folder / "model.safetensors"
    note = f"{source} does not contain its preprocessing: mean=(0.5, 0.5, 0.5), "
    for path in (folder, source):
        checkpoint = read_checkpoint(path)
        assert checkpoint.notes["preprocessing"].startswith(note)
        assert checkpoint.inferred["epsilon"] == 1e-4  # config.json is read
    model = build(tiny_config(image_size=(15, 15), patch_size=3, epsilon=1e-4, gelu="tanh"))
    with pytest.warns(UserWarning, match=r"mean=\(0\.5, .* beside the file\.$"):
        load_weights(model, source)
    (folder / "config.json").unlink()
    assert "preprocessing" in read_checkpoint(source).notes
    told.rename(folder / "preprocessor_config.json")
    for path in (folder, source):
        checkpoint = read_checkpoint(path)
        assert checkpoint.notes == {}
        assert checkpoint.preprocessing.crop_fraction == 15 / 19


def test_pretrained_cfg_without_a_mean_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "timm" / "m.safetensors"
    save_weights(build(tiny_config(gelu="exact")), path, "timm")
    write_safetensors(path, read_safetensors(path), {"format": "pt"})
    change(path.parent / "config.json", pretrained_cfg={"crop_pct": 0.7})
    assert "preprocessing" in read_checkpoint(path).notes
    change(path.parent / "config.json", pretrained_cfg={"mean": [0.1, 0.2, 0.3]})
    checkpoint = read_checkpoint(path)
    assert (checkpoint.notes, checkpoint.preprocessing.mean) == ({}, (0.1, 0.2, 0.3))


def test_placeholders_are_no_labels(folder: Path) -> None:
    placeholders = {str(index): f"LABEL_{index}" for index in range(11)}
    change(strip(folder) / "config.json", id2label=placeholders)
    assert read_checkpoint(folder).preprocessing.class_names is None


def test_a_folder_of_timm(folder: Path, tmp_path: Path) -> None:
    model = randomise(build(tiny_config(gelu="exact")))
    path = tmp_path / "timm" / "model.safetensors"
    save_weights(model, path, "timm")
    strip(path.parent)
    change(
        path.parent / "config.json",
        model_args={"num_heads": 4, "act_layer": "gelu_tanh"},
        label_names=LABELS,
        pretrained_cfg={"input_size": [3, 15, 14], "crop_pct": 0.7},
    )
    checkpoint = read_checkpoint(path.parent)
    assert (checkpoint.inferred["num_heads"], checkpoint.inferred["gelu"]) == (4, "tanh")
    assert checkpoint.preprocessing == Preprocessing(
        size=(15, 14), crop_fraction=0.7, class_names=LABELS
    )


def test_a_folder_of_timm_tells_its_pooling(folder: Path, tmp_path: Path) -> None:
    fields = {"gelu": "exact", "pooling": "gap", "image_size": (15, 10)}
    for after in (True, False):
        path = tmp_path / f"timm-{after}" / "model.safetensors"
        config = tiny_config(**fields, norm_after_pooling=after)
        with pytest.warns(UserWarning, match="global_pool"):
            save_weights(build(config), path, "timm")
        strip(path.parent)
        change(path.parent / "config.json", global_pool="avg", pretrained_cfg={})
        inferred = read_checkpoint(path.parent).inferred
        assert inferred["pooling"] == "gap"
        assert inferred.get("norm_after_pooling", False) is after


# 8 x 18 patches are as many as 12 x 12.
@pytest.mark.parametrize(
    ("format", "patch", "told"),
    [
        ("huggingface", (3, 3), {"model_type": "vit", "image_size": [24, 54]}),
        ("huggingface", (9, 4), {"model_type": "vit", "image_size": 72}),
        ("timm", (3, 2), {"pretrained_cfg": {"input_size": [3, 24, 36]}}),
    ],
    ids=str,
)
def test_the_grid_of_positions_is_that_of_the_images(
    format: str, patch: tuple[int, int], told: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config(patch_size=patch, image_size=(8 * patch[0], 18 * patch[1]), num_layers=1)
    variables = variables_of(randomise(build(config)))
    tensors = {name: keras.ops.convert_to_numpy(v) for name, v in variables.items()}
    written = DIALECTS[format].write(tensors, config)
    write_safetensors(tmp_path / "model.safetensors", written, {"format": "pt"})
    change(tmp_path / "config.json", **told)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.inferred["position_grid"] == (8, 18)
    position = checkpoint.tensors["patch_encoder/position"]
    np.testing.assert_array_equal(position, tensors["patch_encoder/position"])
    # One table of another resolution stays as it is.
    change(tmp_path / "config.json", image_size=[48, 54], pretrained_cfg={"input_size": [3, 1, 9]})
    if format == "huggingface":
        (tmp_path / "config.json").write_text('{"model_type": "vit", "image_size": [48, 54]}')
    assert "patch_encoder/positions" in read_checkpoint(tmp_path).tensors


def test_a_folder_without_configuration_is_its_weights(folder: Path) -> None:
    (strip(folder) / "config.json").unlink()
    checkpoint = read_checkpoint(folder)
    assert checkpoint.inferred["epsilon"] == 1e-12  # the library's default
    assert "num_heads" not in checkpoint.inferred


def test_a_sharded_folder(folder: Path) -> None:
    tensors = read_safetensors(strip(folder) / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[:7], "model-2.safetensors": names[7:]}
    for shard, held in shards.items():
        write_safetensors(folder / shard, {name: tensors[name] for name in held})
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.inferred["num_heads"] == 4
    table = tensors["vit.embeddings.position_embeddings"][0]
    np.testing.assert_array_equal(checkpoint.tensors["patch_encoder/positions"], table)


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"must contain one of model.safetensors, .*: notes.txt"):
        read_checkpoint(tmp_path)
    (tmp_path / "notes.txt").unlink()
    with pytest.raises(ValueError, match="Received: an empty folder"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json must be a JSON file"),
        ("[" * 100_000, "config.json must be a JSON file"),
        ("\udcff", "config.json must be a JSON file"),
        ("[1]", "config.json must contain a JSON object. Received: list"),
    ],
)
def test_damaged_json(text: str, message: str, folder: Path) -> None:
    (folder / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("config.json", {"model_type": "swin"}),
        ("config.json", {"model_type": []}),
        ("config.json", {"hidden_act": ["gelu"]}),
        ("config.json", {"id2label": [1, 2]}),
        ("config.json", {"id2label": "ab"}),
        ("config.json", {"pretrained_cfg": [1]}),
        ("config.json", {"pretrained_cfg": {"input_size": 3}}),
        ("config.json", {"pretrained_cfg": {"crop_pct": "0.9"}}),
        ("config.json", {"pretrained_cfg": {"crop_mode": []}}),
        ("config.json", {"pretrained_cfg": {}, "model_args": [1]}),
        ("preprocessor_config.json", {"image_mean": {"r": 0.5}}),
        ("preprocessor_config.json", {"image_mean": "abc"}),
        ("preprocessor_config.json", {"image_std": [0.5, 0.0, 0.5]}),
        ("preprocessor_config.json", {"resample": [2]}),
        ("preprocessor_config.json", {"size": {"shortest_edge": 0, "height": 0, "width": 0}}),
        ("preprocessor_config.json", {"crop_size": {"height": 0, "width": 0}}),
    ],
    ids=str,
)
def test_an_unsound_configuration(file: str, fields: dict[str, Any], folder: Path) -> None:
    change(folder / file, **fields)
    with pytest.raises(ValueError, match=r"The configuration in .*m must be valid: "):
        read_checkpoint(folder)


@pytest.mark.parametrize("text", ["[1]", '{"a": 1 // a comment\n}', '{"model_type": "bert"}'])
def test_unrelated_configuration_beside_a_file_is_a_note(text: str, folder: Path) -> None:
    source = strip(folder) / "model.safetensors"
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).unlink()
    plain = read_checkpoint(source)
    (folder / "config.json").write_text(text)
    checkpoint = read_checkpoint(source)
    note = checkpoint.notes["configuration"]
    expected = f"{source} is read without the configuration files beside it. The configuration in "
    assert note.startswith(f"{expected}{folder} must be valid: ")
    assert not note.endswith(".")
    assert checkpoint.notes == plain.notes | {"configuration": note}
    assert checkpoint.preprocessing == plain.preprocessing
    assert checkpoint.inferred == plain.inferred
    with pytest.raises(ValueError, match=r"config\.json"):
        read_checkpoint(folder)


def test_rotary_positions_have_no_table_but_an_image_size(tmp_path: Path) -> None:
    fields = {"position_embedding": "rotary", "key_bias": False, "layer_scale": 0.1, "classes": 0}
    config = tiny_config(image_size=(15, 15), patch_size=3, num_heads=2, **fields)
    save_weights(randomise(build(config)), tmp_path / "m", "huggingface")
    assert read_checkpoint(strip(tmp_path / "m")).inferred["image_size"] == (15, 15)
