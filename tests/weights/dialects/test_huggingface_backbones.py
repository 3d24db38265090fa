"""Outputs and round trips of whole files: tests/weights/foundation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_vit import models
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.dialects import Dialect, dialect_for
from keras_vit.weights.positions import POSITIONS
from tests.helpers import numpy

Tensors = dict[str, np.ndarray]

CONFIG = models.ViTConfig(
    hidden_size=24, num_layers=2, num_heads=2, mlp_dim=48, patch_size=4, image_size=(12, 12),
    classes=0,
)  # fmt: skip
DINOV2 = CONFIG.replace(layer_scale=0.1, mask_token=True)
REGISTERS = DINOV2.replace(register_tokens=3)
DINOV3 = REGISTERS.replace(position_embedding="rotary", key_bias=False)
CLIP = CONFIG.replace(pre_norm=True, patch_bias=False)
SIGLIP = CONFIG.replace(class_token=False, pooling="map")
BEIT = CONFIG.replace(position_embedding="relative", key_bias=False, layer_scale=0.1)
SHARED = "encoder.relative_position_bias.relative_position_bias_table"


def variables(config: models.ViTConfig) -> Tensors:
    rng = np.random.default_rng(0)
    found = {name: numpy(v) for name, v in variables_of(models.build(config)).items()}
    return {name: rng.normal(size=v.shape).astype("float32") for name, v in found.items()}


def written(config: models.ViTConfig) -> tuple[Dialect, Tensors]:
    dialect = dialect_for("huggingface", config)
    return dialect, dialect.write(variables(config), config)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        *((CONFIG, "huggingface"), (DINOV2, "dinov2"), (REGISTERS, "dinov2")),
        *((DINOV3, "dinov3_vit"), (CLIP, "clip"), (SIGLIP, "clip"), (BEIT, "beit")),
        (CLIP.replace(patch_bias=True), "huggingface"),
        (SIGLIP.replace(class_token=True), "huggingface"),
    ],
)
def test_the_configuration_determines_the_dialect(config: models.ViTConfig, name: str) -> None:
    assert dialect_for("huggingface", config).name == name


def test_positions_of_registers_become_part_of_the_registers() -> None:
    ours = variables(REGISTERS)
    dialect = dialect_for("huggingface", REGISTERS)
    theirs = dialect.write(ours, REGISTERS)
    table, rows = theirs["embeddings.position_embeddings"], ours["patch_encoder/prefix_position"]
    assert table.shape == (1, 1 + 9, 24)
    np.testing.assert_array_equal(table[0, 0], rows[0, 0])
    sums = ours["patch_encoder/register_tokens"] + rows[:, 1:]
    np.testing.assert_array_equal(theirs["embeddings.register_tokens"], sums)
    found = dialect.read(theirs, "x")
    assert not found.tensors[POSITIONS][1:4].any()
    np.testing.assert_array_equal(found.tensors[POSITIONS][4:], table[0, 1:])
    assert found.inferred["position_grid"] == (3, 3)
    assert found.inferred["position_interpolation"] == "bicubic_antialiased"


def test_a_class_token_without_a_position_gets_zeros() -> None:
    _, theirs = written(REGISTERS.replace(prefix_position=False))
    assert not theirs["embeddings.position_embeddings"][0, 0].any()


@pytest.mark.parametrize(
    ("config", "numerics"),
    [
        (DINOV2, ("exact", 1e-6, "bicubic")),
        (CLIP, ("quick", 1e-5, "bicubic")),
        (SIGLIP, ("tanh", 1e-6, "bicubic")),
    ],
)
def test_numerics_of_a_file_alone(config: models.ViTConfig, numerics: tuple[Any, ...]) -> None:
    dialect, theirs = written(config)
    inferred = dialect.read(theirs, "x").inferred
    names = ("gelu", "epsilon", "position_interpolation")
    assert tuple(inferred[name] for name in names) == numerics


def test_dinov3_and_beit_have_numerics_and_no_bias_of_keys() -> None:
    for config, epsilon in ((DINOV3, 1e-5), (BEIT, 1e-12)):
        dialect, theirs = written(config)
        inferred = dialect.read(theirs, "x").inferred
        assert (inferred["epsilon"], inferred["key_bias"]) == (epsilon, False)
        assert not [name for name in theirs if name.endswith(("k_proj.bias", "key.bias"))]


def test_the_text_tower_is_left_and_the_projection_noted() -> None:
    for config, more in (
        (CLIP, ("visual_projection.weight", "text_projection.weight", "logit_scale")),
        (SIGLIP, ("logit_bias", "logit_scale")),
    ):
        dialect, theirs = written(config)
        text = ("text_model.embeddings.token_embedding.weight", *more)
        found = dialect.read(theirs | dict.fromkeys(text, np.zeros((5, 7))), "x")
        assert set(found.ignored) == set(text)
        assert found.tensors.keys() == dialect.read(theirs, "x").tensors.keys()
        noted = [note for note in found.notes.values() if "images and texts share" in note]
        assert bool(noted) == (config is CLIP)


def test_a_tower_saved_alone_has_no_prefix() -> None:
    for config in (CLIP, SIGLIP):
        dialect, theirs = written(config)
        bare = {name.removeprefix("vision_model."): tensor for name, tensor in theirs.items()}
        assert dialect.matches(bare)
        found, expected = (dialect.read(file, "x").tensors for file in (bare, theirs))
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_the_head_of_siglip_has_one_tensor_for_queries_keys_and_values() -> None:
    ours = variables(SIGLIP)
    theirs = dialect_for("huggingface", SIGLIP).write(ours, SIGLIP)
    packed = theirs["vision_model.head.attention.in_proj_weight"]  # (3D, D)
    np.testing.assert_array_equal(packed[:24], ours["pooling/query/kernel"].T)
    np.testing.assert_array_equal(packed[24:], ours["pooling/key_value/kernel"].T)
    theirs["vision_model.head.attention.in_proj_weight"] = packed[:-1]
    with pytest.raises(ValueError, match=r"in_proj_weight \(23, 24\)"):
        dialect_for("huggingface", SIGLIP).read(theirs, "x")


def test_every_block_gets_a_copy_of_a_shared_table() -> None:
    dialect, theirs = written(BEIT)
    name = "encoder.layer.{}.attention.attention.relative_position_bias"
    tables = [theirs.pop(f"{name.format(i)}.relative_position_bias_table") for i in (0, 1)]
    theirs = {f"beit.{theirs_name}": tensor for theirs_name, tensor in theirs.items()}
    theirs |= {f"beit.{SHARED}": tables[1], "lm_head.bias": np.zeros(5)}
    assert dialect.matches(theirs)
    found = dialect.read(theirs, "x")
    for block in ("block_00", "block_01"):
        table = found.tensors[f"{block}/attention/relative_position"]
        np.testing.assert_array_equal(table, tables[1])
    assert "x: every block has a copy of the shared position table" in found.notes.values()
    assert found.inferred["position_grid"] == (3, 3)


def test_the_classifier_of_dinov2_is_left_with_a_note() -> None:
    dialect, theirs = written(DINOV2)
    theirs = {f"dinov2.{name}": tensor for name, tensor in theirs.items()}
    found = dialect.read(theirs | {"classifier.weight": np.zeros((5, 48))}, "x")
    assert found.ignored == ("classifier.weight",)
    assert any("is not read; the model returns the class token" in n for n in found.notes.values())
    with pytest.raises(ValueError, match=r"'huggingface' must have .* Without a name: head/bias"):
        written(DINOV2.replace(classes=5))
