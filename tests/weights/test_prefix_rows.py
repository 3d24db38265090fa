"""Tables of positions that may or may not have rows for the tokens before the patches."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import models
from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.containers.safetensors import write_safetensors
from keras_vit.weights.dialects import DIALECTS
from keras_vit.weights.infer_config import config_of
from tests.helpers import normal, numpy, randomise, weights_of

# As timm's vit_*_reg4_dinov2, with `no_embed_class=True`: 2 x 3 rows, as many as 5 tokens and 1.
REGISTERS = {"register_tokens": 4, "prefix_position": False, "layer_scale": 0.1}
ROWS = "6 rows for a model of {} patches: either 5 rows of prefix tokens and 1 rows of patches "


def published(folder: Path, **changes: Any) -> tuple[keras.Model, Path]:
    """A model of three channels and five classes that gives logits, and timm's file of it."""
    config = models.size("Micro/4").replace(
        channels=3, classes=5, classifier_activation=None, gelu="exact", epsilon=1e-6, **changes
    )
    model = randomise(models.build(config))
    tensors = {name: numpy(variable) for name, variable in variables_of(model).items()}
    write_safetensors(folder / "model.safetensors", DIALECTS["timm"].write(tensors, config))
    return model, folder / "model.safetensors"


@pytest.fixture
def registers(tmp_path: Path) -> tuple[keras.Model, Path]:
    return published(tmp_path, image_size=(8, 12), **REGISTERS)


def built(weights: Path, *size: int | None, **options: Any) -> keras.Model:
    return keras_vit.ViTMicro4(
        weights=weights,
        input_shape=(*size, 3) if size else None,
        classes=5,
        classifier_activation=None,
        **options,
    )


@pytest.mark.slow
def test_a_grid_given_in_the_overrides_is_that_of_the_table(tmp_path: Path) -> None:
    """4 x 9 positions, which alone are read as 6 x 6."""
    model, path = published(tmp_path, image_size=(16, 36), class_token=False, pooling="gap")
    table = weights_of(model)["patch_encoder/position"]
    for size, expected in (
        ((), (16, 36)),
        ((16, 36), (16, 36)),
        ((None, None), (None, None)),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Position embeddings resized")
            found = built(path, *size, overrides={"position_grid": (4, 9)})
        assert found.input_shape == (None, *expected, 3)
        np.testing.assert_array_equal(weights_of(found)["patch_encoder/position"], table)
    with pytest.warns(UserWarning, match=r"resized from \(6, 6\) to \(4, 9\)"):
        built(path, 16, 36)
    with pytest.raises(ValueError, match=r"`overrides` must not contain `position_grid` for a m"):
        built(path, overrides={"position_grid": (4, 9), "position_embedding": "none"})
    known = {"image_size": (24, 24), "num_heads": 3}
    config = config_of(read_checkpoint(path), **known, position_grid=(4, 9))
    assert (config.grid, config.image_size) == ((4, 9), (24, 24))


def test_a_method_of_resizing_given_in_the_overrides_is_used(tmp_path: Path) -> None:
    _, path = published(tmp_path, image_size=(16, 16))
    options = {"position_interpolation": "bilinear"}
    found = []
    for given in (options, {"overrides": options}, {}):
        with pytest.warns(UserWarning, match="Position embeddings resized"):
            found.append(weights_of(built(path, 24, 24, **given))["patch_encoder/position"])
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0.01


def test_the_image_size_asked_for_tells_bare_registers(
    registers: tuple[keras.Model, Path],
) -> None:
    model, path = registers
    images = normal(2, 8, 12, 3)
    np.testing.assert_array_equal(numpy(built(path, 8, 12)(images)), numpy(model(images)))
    config = config_of(read_checkpoint(path), image_size=(8, 12), num_heads=3)
    assert not config.prefix_position
    other = models.build(config)
    load_weights(other, path)
    np.testing.assert_array_equal(numpy(other(images)), numpy(model(images)))


def test_the_image_size_asked_for_tells_a_single_patch(tmp_path: Path) -> None:
    model, path = published(tmp_path, image_size=(4, 4), register_tokens=4)
    images = normal(2, 4, 4, 3)
    np.testing.assert_array_equal(numpy(built(path, 4, 4)(images)), numpy(model(images)))


@pytest.mark.parametrize(
    ("size", "grid"), [((), "8 x 8"), ((16, 16), "4 x 4"), ((12, 16), "3 x 4")], ids=str
)
def test_a_table_of_two_readings_is_refused(
    size: tuple[int, ...], grid: str, registers: tuple[keras.Model, Path]
) -> None:
    with pytest.raises(ValueError, match=r"must match exactly one layout\.") as error:
        built(registers[1], *size)
    assert str(error.value) == (
        f"The position embedding of {registers[1]} must match exactly one layout. Received: "
        f"{ROWS.format(grid)}(prefix_position=True), or 6 rows of patches (prefix_position=False). "
        "Build the model at the image size that the file was trained at."
    )
    assert read_checkpoint(registers[1]).inferred["position_grid"] is None


def test_a_model_with_other_rows_is_refused(registers: tuple[keras.Model, Path]) -> None:
    config = models.config_of(registers[0])
    with pytest.raises(ValueError, match="Missing in the file: patch_encoder/prefix_position"):
        load_weights(models.build(config.replace(prefix_position=True)), registers[1])
    larger = config.replace(prefix_position=True, image_size=(16, 16))
    with pytest.raises(ValueError, match=ROWS.format("4 x 4")):
        load_weights(models.build(larger), registers[1])


# 5 x 5 patches and a class token are as many as 2 x 13 patches.
def test_a_square_table_at_a_size_that_fits_otherwise_is_refused(tmp_path: Path) -> None:
    model, path = published(tmp_path, image_size=(20, 20))
    message = (
        r"either 1 rows of prefix tokens and 25 rows of patches \(prefix.*, or 26 rows of patches "
        r"\(.*, or pass to a constructor `overrides=\{'prefix_position': ...\}`\."
    )
    with pytest.raises(ValueError, match=message):
        built(path, 8, 52)
    with pytest.warns(UserWarning, match=r"resized from \(5, 5\) to \(2, 13\)"):
        resized = built(path, 8, 52, overrides={"prefix_position": True})
    name = "patch_encoder/prefix_position"
    np.testing.assert_array_equal(weights_of(resized)[name], weights_of(model)[name])
    bare = built(path, 8, 52, overrides={"prefix_position": False})
    table = np.concatenate(
        [weights_of(model)[name][0], weights_of(model)["patch_encoder/position"].reshape(25, -1)]
    )
    found = weights_of(bare)["patch_encoder/position"].reshape(26, -1)
    np.testing.assert_array_equal(found, table)
    config = {"pretrained_cfg": {"input_size": [3, 20, 20]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match=r"resized from \(5, 5\) to \(2, 13\)"):
        built(tmp_path, 8, 52)


@pytest.mark.slow
@pytest.mark.parametrize("prefix_position", [True, False])
def test_a_square_table_is_resized_as_before(prefix_position: bool, tmp_path: Path) -> None:
    changes = {"register_tokens": 4, "prefix_position": prefix_position, "image_size": (20, 20)}
    model, path = published(tmp_path, **changes)
    same = built(path)
    assert models.config_of(same).image_size == (20, 20)
    images = normal(2, 20, 20, 3)
    np.testing.assert_array_equal(numpy(same(images)), numpy(model(images)))
    with pytest.warns(UserWarning, match=r"resized from \(5, 5\) to \(3, 4\)"):
        resized = built(path, 12, 16)
    assert models.config_of(resized).prefix_position is prefix_position
