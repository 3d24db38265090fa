"""A model of every kind that a dialect may have a place for, on a square grid as files have it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.weights.dialects import Dialect
from keras_vit.weights.positions import join_positions
from tests.helpers import tiny_model, weights_of
from tests.weights.files import SQUARE

Tensors = dict[str, np.ndarray]

_GAP = {"class_token": False, "pooling": "gap"}
_STEM = {"stem_width": 32, "image_size": (24, 24), "num_layers": 1}  # 3 x 3 patches

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "four channels": {"channels": 4},
    "no head": {"classes": 0},
    "representation": {"representation_size": 17},
    "no class token": _GAP,
    "fixed positions": {"position_embedding": "sincos_2d"},
    "two tables": {"position_embedding": "learned_2d"},
    "no positions": {"position_embedding": "none"},
    "bare class token": {"prefix_position": False},
    "attention pooling": {"class_token": False, "pooling": "map"},
    "norm after pooling": _GAP | {"norm_after_pooling": True},
    "distilled": {"distillation_token": True, "distillation_head": True},
    "one head for two": {"distillation_token": True},
    "registers": {"register_tokens": 3},
    "bare registers": {"register_tokens": 3, "prefix_position": False},
    "layer scale": {"layer_scale": 1e-5},
    "clip": {"pre_norm": True, "patch_bias": False},
    "no qkv bias": {"qkv_bias": False},
    "hybrid": _STEM | {"stem_blocks": (1, 2), "patch_size": 1},
    "root": _STEM | {"stem_blocks": (), "patch_size": 2},
}


def config_of(variant: str) -> ViTConfig:
    return SQUARE.replace(**VARIANTS[variant])


@functools.cache
def _weights(variant: str) -> Tensors:
    return weights_of(tiny_model(**{"image_size": SQUARE.image_size} | VARIANTS[variant]))


def weights(variant: str) -> Tensors:
    """All weights of the model, by path."""
    return dict(_weights(variant))


def joined(variant: str) -> Tensors:
    """The same with all positions in one table."""
    return join_positions(_weights(variant), config_of(variant))


def written(dialect: Dialect, variant: str) -> Tensors:
    """What a file in this dialect has."""
    return dialect.write(_weights(variant), config_of(variant))


def assert_same(found: Tensors, expected: Tensors) -> None:
    """Asserts the same names, and values that are equal to the bit."""
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == np.float32, name
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)
