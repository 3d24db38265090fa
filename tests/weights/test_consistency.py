from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import config_of
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.consistency import check_consistency
from keras_vit.weights.infer_config import infer_fields
from keras_vit.weights.positions import POSITIONS, join_positions
from tests.helpers import tiny_config, tiny_model, weights_of


def checkpoint_of(model: keras.Model, joined: bool = False) -> Checkpoint:
    """A checkpoint as our files give it, or with one table of positions as others' do."""
    tensors = weights_of(model)
    if joined:
        tensors = join_positions(tensors, config_of(model))
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
