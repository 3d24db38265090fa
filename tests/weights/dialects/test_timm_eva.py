"""More cases, with the outputs of timm: tests/weights/foundation."""

from __future__ import annotations

from typing import Any

import pytest

from keras_vit import models
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.dialects import TIMM, TIMM_EVA, dialect_for
from keras_vit.weights.positions import join_positions
from keras_vit.weights.resolve import dialect_of
from tests.helpers import numpy, weights_of
from tests.weights.dialects.model_variants import assert_same

CONFIG = models.ViTConfig(
    hidden_size=24, num_layers=1, num_heads=2, mlp_dim=8, patch_size=4, image_size=(8, 12),
    classes=0, layer_scale=0.1, qkv_bias=True, key_bias=False,
)  # fmt: skip
EVA02 = {"position_embedding": "learned_rotary", "swiglu": True, "layer_scale": None}


def written(**changes: Any) -> set[str]:
    config = CONFIG.replace(**changes)
    model = models.build(config)
    tensors = {name: numpy(variable) for name, variable in variables_of(model).items()}
    return set(dialect_for("timm", config).write(tensors, config))


def test_models_of_vision_transformer_py_keep_their_names() -> None:
    assert dialect_for("timm", CONFIG.replace(key_bias=True)) is TIMM
    assert dialect_for("timm", CONFIG) is TIMM_EVA
    rotary = CONFIG.replace(position_embedding="rotary", qkv_bias=False)
    assert dialect_for("timm", rotary) is TIMM_EVA


def test_the_small_eva02_has_one_gated_layer_and_the_large_has_two() -> None:
    assert written(**EVA02) >= {"blocks.0.mlp.fc1.weight", "blocks.0.attn.qkv.weight"}
    large = written(**EVA02, mlp_norm=True)
    assert large >= {"blocks.0.mlp.fc1_g.weight", "blocks.0.mlp.norm.weight"}
    assert large >= {"blocks.0.attn.q_proj.bias", "blocks.0.attn.k_proj.weight"}
    assert not large & {"blocks.0.attn.k_proj.bias", "blocks.0.mlp.fc1.weight"}


@pytest.mark.parametrize(
    "changes",
    [
        {"position_embedding": "relative", "qkv_bias": False},
        {"position_embedding": "rotary", "qkv_bias": False, "swiglu": True},
        {"position_embedding": "rotary", "qkv_bias": False, "mlp_norm": True},
        EVA02 | {"mlp_norm": True, "qkv_bias": False},
        EVA02 | {"mlp_norm": True, "key_bias": True},
    ],
    ids=str,
)
def test_files_without_layer_scale_and_biases_are_read(changes: dict[str, Any]) -> None:
    config = CONFIG.replace(**{**changes, "layer_scale": None})
    tensors = weights_of(models.build(config))
    file = dialect_for("timm", config).write(tensors, config)
    assert dialect_of(file, "x") is TIMM_EVA
    found = TIMM_EVA.read(file, "x").tensors
    assert_same(found, join_positions(tensors, config, optional_prefix=True))


def test_relative_positions_with_biases_of_keys_are_refused() -> None:
    """BEiT has none; the package reads such files of earlier versions."""
    config = CONFIG.replace(position_embedding="relative", key_bias=True)
    tensors = weights_of(models.build(config))
    message = r"'timm' must support the model's positions\. .*='relative', key_bias=True\."
    with pytest.raises(ValueError, match=message):
        dialect_for("timm", config).write(tensors, config)
    assert dialect_of(TIMM_EVA.write(tensors, config), "x") is TIMM_EVA


def test_a_format_without_rotary_positions_refuses_them() -> None:
    config = CONFIG.replace(position_embedding="rotary")
    tensors = {name: numpy(v) for name, v in variables_of(models.build(config)).items()}
    with pytest.raises(ValueError, match="'timm' must support the model's positions"):
        TIMM.write(tensors, config)
