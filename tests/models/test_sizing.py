from __future__ import annotations

from typing import Any

import keras
import pytest

from keras_vit import models
from tests.helpers import tiny_config


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "gap"},
        {"class_token": False, "pooling": "map"},
        {"pooling": "none", "classes": 0},
        {"representation_size": 13},
        {"position_embedding": "learned_2d"},
        {"position_embedding": "sincos_2d"},
        {"position_embedding": "none"},
        {"qkv_bias": False},
        {"channels": 5},
        {"distillation_token": True, "distillation_head": True},
        {"register_tokens": 3, "prefix_position": False, "patch_bias": False},
        {"pre_norm": True, "layer_scale": 0.1},
        {"pooling": "gap", "norm_after_pooling": True},
        {"representation_size": 13, "classes": 0},
        {"stem_blocks": (), "stem_width": 32, "image_size": (24, 32)},
        {"stem_blocks": (1, 2, 1), "stem_width": 32, "patch_size": 1, "image_size": (32, 35)},
        {"image_size": (None, None), "position_grid": (3, 8)},
    ],
)
def test_count_parameters_equals_the_built_model(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    with keras.StatelessScope(initialize_variables=False):  # counts without allocating
        built = models.build(config).count_params()
    assert models.count_parameters(config) == built
