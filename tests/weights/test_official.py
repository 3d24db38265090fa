"""Parity with the official code, google-research/vision_transformer at commit c6de1e53.

Every case was computed by that code. Its weights are written as an official file and go through
the public loader; tokens, attention weights and logits must agree. Hybrids, with a ResNet stem,
are left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers.position import resize_table
from keras_vit.models import ViTConfig, build
from keras_vit.weights import LoadReport, load_weights
from tests.helpers import assert_close, numpy, weights_of

# Absolute, on values up to about 9. Measured: 4.1e-6 and 1.9e-5, both on tokens (B/32).
SMALL, REAL_SIZE = 2e-5, 1e-4

REAL_SIZES = {"ViT-Ti_16_224", "ViT-S_16_224", "ViT-B_16_224", "ViT-B_32_224"}
SLOW = REAL_SIZES - {"ViT-Ti_16_224"}

POOLING = {"token": "token", "gap": "gap", "unpooled": "none", "token_unpooled": "none"}


def cases() -> list[Any]:
    """The names of all models in the reference folder without a ResNet stem, at collection."""
    folder = os.environ.get("KERAS_VIT_TEST_DATA")
    found = []
    for path in sorted(Path(folder, "reference", "official").glob("*.json")) if folder else ():
        case = json.loads(path.read_text(encoding="utf-8"))
        if "classifier" in case["config"] and "resnet" not in case["config"]:
            marks = [pytest.mark.slow] if path.stem in SLOW else []
            found.append(pytest.param(path.stem, marks=marks))
    return found


CASES = cases() or [pytest.param("token")]  # skipped by the fixture, with its reason


@pytest.fixture(scope="session")
def recipe(test_data: Path) -> ModuleType:
    """The module that makes the weights and images of a case from their names."""
    path = test_data / "reference" / "recipe.py"
    spec = importlib.util.spec_from_file_location("reference_recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(recipe: ModuleType, folder: Path, name: str) -> dict[str, Any]:
    return recipe.load(str(folder / "reference" / "official" / f"{name}.json"))


def config_of_case(case: dict[str, Any]) -> ViTConfig:
    config = case["config"]
    transformer, patch = config["transformer"], config["patches"]["size"]
    return ViTConfig(
        hidden_size=config["hidden_size"],
        representation_size=config["representation_size"],
        patch_size=patch,
        image_size=tuple(case["image"]),
        classes=case["num_classes"],
        classifier_activation=None,
        pooling=POOLING[config["classifier"]],
        class_token=config["classifier"].startswith("token"),
        remainder="drop" if np.any(np.mod(case["image"], patch)) else "error",
        **transformer,
    )


def load_case(recipe: ModuleType, case: dict[str, Any], path: Path) -> tuple[Any, LoadReport]:
    np.savez(path, **recipe.weights(case))
    model = build(config_of_case(case))
    report = load_weights(model, path)
    if "target_weights" in case:  # fine-tuning: the head is the new model's
        head = recipe.weights(case, "target_weights")
        model.get_layer("head").set_weights([head["head/kernel"], head["head/bias"]])
    return model, report


def trace(model: keras.Model, images: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors of a forward pass, under the reference's names."""
    encoder = model.get_layer("patch_encoder")
    outputs = {
        "embedding": encoder.projection(encoder.input),
        "posembed": encoder.output,
        "encoder_norm": model.get_layer("encoder_norm").output,
        "pre_logits": model.get_layer("head").input,
        "logits": model.output,
    }
    for layer in model.layers:
        if layer.name.startswith("block_"):
            outputs[layer.name.replace("_", "")] = layer.output
    return keras.Model(model.inputs, outputs).predict(images, verbose=0)


def attention(model: keras.Model, found: dict[str, np.ndarray], index: int) -> np.ndarray:
    """The attention weights of a block, (B, K, T, T)."""
    block = model.get_layer(f"block_{index:02d}")
    z = block.norm_1(found[f"block{index - 1:02d}" if index else "posembed"])
    return numpy(block.attention(z, return_attention_scores=True)[1])


def stored_part(found: dict[str, np.ndarray], name: str) -> np.ndarray:
    """What the reference stores under this name: of the real sizes, only parts."""
    base, _, part = name.rpartition("_")
    if part == "first5":
        return found[base][:, :5]
    if part == "mean":
        return found[base].mean(axis=1)
    if part == "row0":
        return found[base][:, 0]
    return found[name]


@pytest.mark.parametrize("name", CASES)
def test_official_outputs(name: str, recipe: ModuleType, test_data: Path, tmp_path: Path) -> None:
    case = load(recipe, test_data, name)
    model, _ = load_case(recipe, case, tmp_path / "official.npz")
    found = trace(model, recipe.image(case))
    found["pos_embedding_new"] = stored_table(model)
    expected = recipe.outputs(case)
    assert {"logits", "pre_logits"} <= expected.keys()
    for output, values in expected.items():
        if output.startswith("attention"):
            found[output] = attention(model, found, int(output[-2:]))
        tolerance = REAL_SIZE if name in REAL_SIZES else SMALL
        assert_close(stored_part(found, output), values, tolerance, f"{name} {output}")


def stored_table(model: keras.Model) -> np.ndarray:
    """The position embedding as the official code stores it: (1, [1 +] N, D)."""
    weights = weights_of(model)
    table = weights["patch_encoder/position"]
    table = table.reshape(1, -1, table.shape[-1])
    if "patch_encoder/class_position" in weights:
        table = np.concatenate([weights["patch_encoder/class_position"], table], axis=1)
    return table


def test_every_kind_of_case_is_there(test_data: Path) -> None:
    names = {case.values[0] for case in CASES}
    assert len(names) == 21
    assert names > REAL_SIZES | {"token", "gap_representation", "ragged_image", "small_variance"}
    assert not any("hybrid" in name or name.startswith("R") for name in names)


@pytest.mark.parametrize(
    ("name", "resized", "reset", "dropped"),
    [
        ("token", (), (), ()),
        ("resize_4x4_to_6x6", ((4, 4), (6, 6)), ("head/kernel", "head/bias"), ()),
        (
            *("resize_drop_pre_logits", ((4, 4), (5, 5)), ("head/kernel", "head/bias")),
            ("pre_logits/bias", "pre_logits/kernel"),
        ),
        ("resize_keep_pre_logits", ((4, 4), (3, 3)), ("head/kernel", "head/bias"), ()),
        ("resize_gap_4x4_to_7x7", ((4, 4), (7, 7)), (), ()),
        ("same_grid_new_head", (), (), ()),
    ],
)
def test_official_loading_is_reported(
    name: str,
    resized: tuple[Any, ...],
    reset: tuple[str, ...],
    dropped: tuple[str, ...],
    recipe: ModuleType,
    test_data: Path,
    tmp_path: Path,
) -> None:
    case = load(recipe, test_data, name)
    _, report = load_case(recipe, case, tmp_path / "official.npz")
    sentence = "Position embeddings resized from {} to {} patches"
    assert report.resized == ((sentence.format(*resized),) if resized else ())
    assert report.reset == reset
    assert sorted(report.dropped) == sorted(dropped)


@pytest.mark.parametrize("suffix", ["checkpoint", "checkpoint_new_names"])
def test_official_file_as_the_official_code_wrote_it(
    suffix: str, recipe: ModuleType, test_data: Path
) -> None:
    case = load(recipe, test_data, "token_representation")
    path = test_data / "reference" / "official" / f"token_representation.{suffix}.npz"
    model = build(config_of_case(case))
    assert load_weights(model, path).notes() == []
    assert_close(model(recipe.image(case)), recipe.outputs(case)["logits"], SMALL)


def tables(case: dict[str, Any], recipe: ModuleType) -> list[tuple[str, np.ndarray]]:
    return [(name, table[0]) for name, table in recipe.weights(case).items()]


def test_positions_resized_as_the_official_code_does(recipe: ModuleType, test_data: Path) -> None:
    case = load(recipe, test_data, "interpolate_posembed")
    expected = recipe.outputs(case)
    for name, table in tables(case, recipe):
        prefix = int(name.startswith("pos_cls"))
        old, new = (int(side) for side in name.split("_")[2::2])
        grid = table[prefix:].reshape(old, old, -1)
        resized = numpy(resize_table(grid, (new, new))).reshape(1, new * new, -1)
        # Measured: 1.0e-6.
        assert_close(resized, expected[name][:, prefix:], 5e-6, name)


def test_positions_resized_as_timm_does(recipe: ModuleType, test_data: Path) -> None:
    case = recipe.load(str(test_data / "reference" / "train" / "resample_abs_pos_embed.json"))
    expected = recipe.outputs(case)
    for name, table in tables(case, recipe):
        _, old, _, new, prefix = name.split("_")
        prefix = int(prefix.removeprefix("prefix"))
        old_grid, new_grid = ([int(side) for side in grid.split("x")] for grid in (old, new))
        grid = table[prefix:].reshape(*old_grid, -1)
        resized = numpy(resize_table(grid, tuple(new_grid), "bicubic_antialiased"))
        target = expected[f"{name}_bicubic_antialias1"][0, prefix:]
        # Measured: 6e-7.
        assert_close(resized.reshape(target.shape), target, 5e-6, name)


def test_published_file_loads(test_data: Path) -> None:
    """Ti/16 of AugReg, as Google publishes it."""
    path = test_data / "weights" / "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
    model = keras_vit.ViTTi16(weights=path)
    assert model.count_params() == 5_717_416
    assert keras_vit.models.preprocessing_of(model).labels[207] == "golden_retriever"
    with np.load(path) as file:
        np.testing.assert_array_equal(weights_of(model)["head/kernel"], file["head/kernel"])
