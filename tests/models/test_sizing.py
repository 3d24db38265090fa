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
        {"image_size": (None, None), "position_grid": (3, 8)},
    ],
)
def test_count_parameters_equals_the_built_model(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    with keras.StatelessScope(initialize_variables=False):  # counts without allocating
        built = models.build(config).count_params()
    assert models.count_parameters(config) == built
