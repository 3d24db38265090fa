from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_vit.weights.checkpoint import Checkpoint, variables_of
from keras_vit.weights.infer_config import config_of, infer_fields
from keras_vit.weights.positions import POSITIONS
from tests.helpers import tiny_model


def test_traits_of_a_whole_model() -> None:
    model = tiny_model(representation_size=17)
    tensors = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    assert infer_fields(tensors) == {
        "hidden_size": 24,
        "num_layers": 2,
        "mlp_dim": 29,
        "swiglu": False,
        "mlp_norm": False,
        "mask_token": False,
        "key_bias": True,
        "classes": 11,
        "class_token": True,
        "distillation_token": False,
        "distillation_head": False,
        "register_tokens": 0,
        "pre_norm": False,
        "patch_bias": True,
        "qkv_bias": True,
        "layer_scale": None,
        "stem_blocks": None,
        "pooling": "token",
        "prefix_position": True,
        "representation_size": 17,
        "position_embedding": "learned",
        "position_grid": (5, 7),
    }


def test_traits_of_two_dimensional_positions() -> None:
    model = tiny_model(position_embedding="learned_2d")
    inferred = infer_fields({name: np.asarray(v) for name, v in variables_of(model).items()})
    assert (inferred["position_embedding"], inferred["position_grid"]) == ("learned_2d", (5, 7))


@pytest.mark.parametrize("pooling", ["gap", "map"])
def test_traits_of_a_backbone_without_a_class_token(pooling: str) -> None:
    model = tiny_model(classes=0, class_token=False, pooling=pooling, position_embedding="none")
    inferred = infer_fields({name: np.asarray(v) for name, v in variables_of(model).items()})
    assert (inferred["classes"], inferred["class_token"], inferred["pooling"]) == (
        0,
        False,
        pooling,
    )
    assert inferred["representation_size"] is None
    assert "position_grid" not in inferred


VARIANTS = {
    "distilled": {"distillation_token": True, "distillation_head": True},
    "registers": {"register_tokens": 3, "prefix_position": False},
    "clip": {"pre_norm": True, "patch_bias": False, "qkv_bias": False},
    "scaled": {"layer_scale": 1e-5},
    "hybrid": {"stem_blocks": (1, 2), "stem_width": 32, "patch_size": 1, "image_size": (40, 24)},
    "root": {"stem_blocks": (), "stem_width": 32, "patch_size": 2, "image_size": (40, 24)},
    "fixed": {"position_embedding": "sincos_2d"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_traits_of_a_variant(changes: dict[str, Any]) -> None:
    model = tiny_model(**changes)
    inferred = infer_fields({name: np.asarray(v) for name, v in variables_of(model).items()})
    told = changes.keys() - {"image_size", "patch_size", "position_embedding"}
    assert {name: inferred[name] for name in told} == {name: changes[name] for name in told}


@pytest.mark.parametrize(
    ("length", "prefix", "expected"),
    [
        (26, 1, ((5, 5), True)),
        (25, 1, ((5, 5), False)),  # 24 is no square
        (25, 0, ((5, 5), True)),
        (27, 2, ((5, 5), True)),
        (36, 1, ((6, 6), False)),
        (29, 1, (None, True)),
    ],
)
def test_traits_of_a_joint_table(length: int, prefix: int, expected: tuple[Any, bool]) -> None:
    names = ("class_token", "distillation_token")[:prefix]
    tensors = {f"patch_encoder/{name}": np.zeros((1, 1, 6)) for name in names}
    inferred = infer_fields(tensors | {POSITIONS: np.zeros((length, 6))}, loose_positions=True)
    assert (inferred["position_grid"], inferred["prefix_position"]) == expected


def test_config_of_needs_what_no_file_tells() -> None:
    model = tiny_model(position_embedding="none")
    tensors = {name: np.asarray(v) for name, v in variables_of(model).items()}
    checkpoint = Checkpoint("a.h5", tensors, infer_fields(tensors))
    message = r"a.h5 does not contain num_heads, patch_size, image_size: pass num_heads=\.\.\., "
    with pytest.raises(ValueError, match=message):
        config_of(checkpoint)


def test_config_of_a_published_width_knows_its_heads() -> None:
    inferred = {"hidden_size": 192, "num_layers": 12, "mlp_dim": 768, "patch_size": (16, 16)}
    found = config_of(Checkpoint("a", {}, inferred | {"position_grid": (14, 20)}))
    assert (found.num_heads, found.image_size) == (3, (224, 320))
    assert found.classifier_activation is None


def test_relative_positions_determine_the_image_size() -> None:
    model = tiny_model(position_embedding="relative", image_size=(15, 15), patch_size=3)
    tensors = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    checkpoint = Checkpoint("x", tensors, infer_fields(tensors))
    assert config_of(checkpoint, num_heads=4, patch_size=(3, 3)).image_size == (15, 15)
