from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from keras_vit.models import ViTConfig, size
from tests.helpers import tiny_config

# Width D, layers L, perceptron M and heads K. B, L, H: Table 1 of https://arxiv.org/abs/2010.11929;
# Ti, S: Table 1 of https://arxiv.org/abs/2106.10270; g, G: Table 2 of
# https://arxiv.org/abs/2106.04560.
PUBLISHED = {
    "Ti/16": (192, 12, 768, 3),
    "S/32": (384, 12, 1536, 6),
    "B/8": (768, 12, 3072, 12),
    "L/16": (1024, 24, 4096, 16),
    "H/14": (1280, 32, 5120, 16),
    "g/14": (1408, 40, 6144, 16),
    "G/14": (1664, 48, 8192, 16),
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_size_is_the_published_one(name: str, published: tuple[int, ...]) -> None:
    config = size(name)
    assert (config.hidden_size, config.num_layers, config.mlp_dim, config.num_heads) == published
    assert config.patch == config.patch_size == (int(name.partition("/")[2]),) * 2
    assert (config.image_size, config.classes) == ((224, 224), 1000)


def test_size_suggests_the_nearest() -> None:
    message = (
        r"`name` must be one of these. Did you mean 'Micro/2'\? Options: 'Ti/2', .* name='Micra"
    )
    with pytest.raises(ValueError, match=message):
        size("Micra/2")
    with pytest.raises(ValueError, match=r"Did you mean 'R50\+B/16'\? .* name='R51\+B/16'"):
        size("R51+B/16")
    with pytest.raises(
        ValueError,
        match=r"`name` must have the form 'B/16'. Received: name='B16'",
    ):
        size("B16")


def test_config_goes_through_json() -> None:
    config = tiny_config(image_size=(None, 14), position_grid=(3, 7), dropout_rate=0.1)
    assert ViTConfig(**json.loads(json.dumps(config.get_config()))) == config


def test_config_has_no_integers_of_numpy() -> None:
    names = ("register_tokens", "window_size", "global_blocks", "num_layers", "representation_size")
    config = size("Ti/16").replace(**dict.fromkeys(names, np.int64(4)))
    assert ViTConfig(**json.loads(json.dumps(config.get_config()))) == config


def test_config_is_frozen_and_hashable() -> None:
    config = tiny_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.classes = 3  # type: ignore[misc]
    assert hash(config) == hash(tiny_config())


@pytest.mark.parametrize(
    ("changes", "grid"),
    [
        ({}, (5, 7)),
        ({"image_size": (None, None)}, (74, 112)),  # 224 px, patches of 3 x 2
        ({"image_size": (None, 14)}, (74, 7)),
        ({"position_grid": [4, 9]}, (4, 9)),
        ({"image_size": (17, 15), "remainder": "drop"}, (5, 7)),
        # Feature maps of 4, 8 and 16 pixels a cell; sides are rounded up.
        ({"stem_blocks": (), "image_size": (33, 30)}, (3, 4)),
        ({"stem_blocks": (3, 4, 9), "patch_size": 1, "image_size": (224, 250)}, (14, 16)),
    ],
)
def test_config_grid(changes: dict[str, Any], grid: tuple[int, int]) -> None:
    assert tiny_config(**changes).grid == grid


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, r"`hidden_size` must be a positive integer. Received: hidden_size=0"),
        ({"num_layers": 1.5}, "`num_layers` must be a positive integer"),
        ({"channels": -1}, "`channels` must be a positive integer"),
        ({"classes": -3}, "`classes` must be a non-negative integer"),
        ({"classes": None}, "`classes` must be a non-negative integer. Received: classes=None"),
        ({"layer_scale": 0}, "`layer_scale` must be a positive number. Received: layer_scale=0"),
        ({"hidden_size": 22}, r"multiple of `num_heads`. Received: hidden_size=22, num_heads=4"),
        ({"representation_size": 0}, "`representation_size` must be a positive integer"),
        (
            {"representation_size": 7, "pooling": "none"},
            "`representation_size` needs pooling.",
        ),
        ({"distillation_head": True}, "`distillation_head` needs distillation_token=True and pool"),
        (
            {"distillation_token": True, "class_token": False, "pooling": "gap"},
            "`distillation_token` needs class_token=True. Received: class_token=False",
        ),
        ({"norm_after_pooling": True}, "`norm_after_pooling` needs pooling='gap' or 'max'. Rec"),
        ({"register_tokens": -1}, "`register_tokens` must be a non-negative integer"),
        ({"epsilon": 0}, "`epsilon` must be a positive number. Received: epsilon=0"),
        ({"stem_blocks": (2, 0)}, "`stem_blocks` must be a positive integer"),
        ({"stem_blocks": 3}, "`stem_blocks` must be a tuple .* or None. Received: stem_blocks=3"),
        ({"stem_blocks": (), "stem_width": 48}, "`stem_width` must be a multiple of 32"),
        (
            {"pooling": "mean"},
            "`pooling` must be one of 'token', 'gap', 'max', 'token_gap'",
        ),
        ({"class_token": False}, "needs a class token; use 'gap' or 'map' without one"),
        ({"gelu": "Tanh"}, "Did you mean 'tanh'"),
        ({"position_embedding": "sincos"}, "Did you mean 'sincos_2d'"),
        (
            {"position_embedding": "sincos_2d", "hidden_size": 14, "num_heads": 7},
            "`hidden_size` must be a multiple of 4 for position_.*='sincos_2d'. .* hidden_size=14",
        ),
        (
            {"position_embedding": "learned_2d", "hidden_size": 15, "num_heads": 3},
            "`hidden_size` must be a multiple of 2 for position_.*='learned_2d'. .* hidden_size=15",
        ),
        ({"position_interpolation": "nearest"}, "`position_interpolation` must be one of"),
        ({"stochastic_depth_rate": 1.0}, r"`stochastic_depth_rate` must be a number in \[0, 1\)"),
        ({"patch_size": (3, 2, 1)}, r"`patch_size` must be .* a pair \(height, width\)"),
        ({"image_size": (15,)}, r"`image_size` must be a pair \(height, width\)"),
        ({"image_size": 15}, r"`image_size` must be a pair \(.*\). Received: image_size=15"),
        ({"image_size": (15, 0)}, "`image_size` must be a positive integer"),
        ({"image_size": (16, 14)}, r"nearest sizes are \(15, 14\) and \(18, 14\)"),
        ({"position_grid": (0, 3)}, "`position_grid` must be a positive integer"),
        ({"remainder": "crop"}, "Did you mean 'drop'"),
    ],
)
def test_config_checks_its_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)
