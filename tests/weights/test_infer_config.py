from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.weights.checkpoint import Checkpoint, variables_of
from keras_vit.weights.infer_config import check_consistency, config_of, infer_fields
from keras_vit.weights.positions import POSITIONS, join_positions
from tests.helpers import tiny_config, tiny_model, weights_of


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
    inferred = infer_fields(tensors | {POSITIONS: np.zeros((length, 6))}, optional_prefix=True)
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


def checkpoint_of(model: keras.Model, joined: bool = False) -> Checkpoint:
    """A checkpoint as our files give it, or with one table of positions as others' do."""
    tensors = weights_of(model)
    if joined:
        tensors = join_positions(tensors, models.config_of(model))
    return Checkpoint("a.npz", tensors, infer_fields(tensors))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "gap"},
        {"prefix_position": False},
        {"distillation_token": True},
        {"register_tokens": 3, "prefix_position": False},
        {"position_embedding": "none"},
        {"position_embedding": "sincos_2d"},
        {"position_embedding": "sincos_2d", "prefix_position": False},
        {"image_size": (None, None), "position_grid": (5, 7)},
    ],
    ids=str,
)
@pytest.mark.parametrize("joined", [False, True])
def test_agreeing_gives_the_variables_of_the_model(joined: bool, changes: dict[str, Any]) -> None:
    model = tiny_model(**changes)
    tensors = check_consistency(checkpoint_of(model, joined), tiny_config(**changes))
    expected = weights_of(model)
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 3}, "num_layers=2 instead of 3"),
        ({"classes": 7}, "classes=11 instead of 7"),
        ({"class_token": False, "pooling": "gap"}, "class_token=True instead of False"),
        ({"qkv_bias": False}, "qkv_bias=True instead of False"),
        ({"layer_scale": 0.1}, "layer_scale=None, not 0.1"),
        ({"stem_blocks": (1,), "image_size": (12, 8)}, r"stem_blocks=None instead of \(1,\)"),
        ({"channels": 4}, "18 values per patch instead of 24"),
        ({"patch_size": (3, 7)}, "18 values per patch instead of 63"),
        (
            {"image_size": (21, 10)},  # 7 x 5
            r"positions of shape \(5, 7, 24\) for a grid of \(7, 5\) and pos",
        ),
        ({"position_embedding": "none"}, r"positions of shape .*position_embedding='none'"),
        ({"position_embedding": "sincos_2d"}, r"positions of .*position_embedding='sincos_2d'"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"a.npz must match its config.*Received: {message}"):
        check_consistency(checkpoint_of(tiny_model()), tiny_config(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": (15, 16)},
        {"prefix_position": False},
        {"position_embedding": "sincos_2d"},
        {"position_embedding": "none"},
        {"position_embedding": "learned_2d"},
    ],
    ids=str,
)
def test_a_table_of_another_model_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Received: positions of shape \(36, 24\) for"):
        check_consistency(checkpoint_of(tiny_model(), joined=True), tiny_config(**changes))


def test_a_fixed_table_may_differ_in_its_last_bits() -> None:
    checkpoint = checkpoint_of(tiny_model(position_embedding="sincos_2d"), joined=True)
    config = tiny_config(position_embedding="sincos_2d")
    checkpoint.tensors[POSITIONS] += np.float32(1e-6)
    assert POSITIONS not in check_consistency(checkpoint, config)
    checkpoint.tensors[POSITIONS][7, 5] += np.float32(1e-3)
    with pytest.raises(ValueError, match="positions of shape"):
        check_consistency(checkpoint, config)


def test_missing_positions_are_refused() -> None:
    checkpoint = checkpoint_of(tiny_model(position_embedding="none"))
    with pytest.raises(ValueError, match="positions of shape None for a grid"):
        check_consistency(checkpoint, tiny_config())
