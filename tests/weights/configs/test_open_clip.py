from __future__ import annotations

from typing import Any

import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.open_clip import (
    read_config,
    read_image_size,
    read_labels,
    read_preprocessing,
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, {"num_heads": 12, "gelu": "exact", "pooling": "token"}),
        (
            {"quick_gelu": True, "vision_cfg": {"width": 1280, "head_width": 80}},
            {"num_heads": 16, "gelu": "quick", "pooling": "token"},
        ),
        (
            {
                "vision_cfg": {
                    "pool_type": "avg",
                    "final_ln_after_pool": True,
                    "act_kwargs": {"approximate": "tanh"},
                    "norm_kwargs": {"eps": 1e-6},
                }
            },
            {"num_heads": 12, "gelu": "tanh", "pooling": "gap", "epsilon": 1e-6}
            | {"norm_after_pooling": True},
        ),
    ],
)
def test_read_config(model: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read_config({"model_cfg": model}, "m") == expected


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`pool_type` of m must be one of tok, avg\. Received: "):
        read_config({"model_cfg": {"vision_cfg": {"pool_type": "none"}}}, "m")


def test_image_size_and_preprocessing() -> None:
    vision = {"model_cfg": {"vision_cfg": {"image_size": 336}}}
    assert read_image_size(vision) == (336, 336)
    assert read_image_size({"model_cfg": {"vision_cfg": {"image_size": [28, 42]}}}) == (28, 42)
    assert read_image_size({}) is None
    assert read_labels(vision, 5) is None
    told = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bilinear"}
    found = read_preprocessing(
        vision | {"preprocess_cfg": {**told, "resize_mode": "squash"}}, Preprocessing()
    )
    assert (found.size, found.resize, found.interpolation) == ((336, 336), "squash", "bilinear")
    assert (found.mean, found.std, found.crop_fraction) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 1.0)
