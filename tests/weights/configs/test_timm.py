from __future__ import annotations

from typing import Any

import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.timm import (
    read_config,
    read_image_size,
    read_labels,
    read_preprocessing,
)

# As published: timm/vit_tiny_patch16_384.augreg_in21k_ft_in1k, with a mean of its own.
PUBLISHED = {
    "architecture": "vit_tiny_patch16_384",
    "num_classes": 1000,
    "pretrained_cfg": {
        "input_size": [3, 384, 320],
        "interpolation": "bilinear",
        "crop_pct": 0.95,
        "crop_mode": "squash",
        "mean": [0.4, 0.5, 0.6],
        "std": [0.1, 0.2, 0.3],
    },
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_heads": 5, "act_layer": "gelu_tanh"}, {"num_heads": 5, "gelu": "tanh"}),
        ({"act_layer": "gelu"}, {"gelu": "exact"}),
        ({"act_layer": None, "global_pool": ""}, {}),
        ({"global_pool": "token"}, {"pooling": "token"}),
        ({"global_pool": "avg"}, {"pooling": "gap"}),
        ({"global_pool": "max"}, {"pooling": "max"}),
        ({"global_pool": "map"}, {"pooling": "map"}),
        ({}, {}),
        (None, {}),
    ],
)
def test_read_config(arguments: Any, expected: dict[str, Any]) -> None:
    assert read_config({"model_args": arguments}, "m") == expected


def test_read_config_without_arguments() -> None:
    assert read_config(PUBLISHED, "m") == {}
    assert read_config(PUBLISHED | {"global_pool": "avg"}, "m") == {"pooling": "gap"}


def test_arguments_of_the_model_go_before_its_description() -> None:
    content = {"global_pool": "avg", "model_args": {"global_pool": "max"}}
    assert read_config(content, "m") == {"pooling": "max"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"model_args": {"act_layer": "silu"}},
            r"`act_layer` of m must be one of gelu, .*, quick_gelu\. Received: act_layer='silu'",
        ),
        (
            {"global_pool": "avgmax"},
            r"`global_pool` of m must be one of token, avg, max, map\. "
            "Received: global_pool='avgmax'",
        ),
    ],
)
def test_read_config_of_another_model(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config(content, "m")


def test_read_image_size() -> None:
    assert read_image_size(PUBLISHED) == (384, 320)
    assert read_image_size({"pretrained_cfg": {}}) is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["cat", "dog"], ("cat", "dog")), (["cat"], None), (None, None), ("ab", None), ([], None)],
)
def test_read_labels(names: Any, expected: tuple[str, ...] | None) -> None:
    assert read_labels({"label_names": names}, 2) == expected


def test_read_preprocessing() -> None:
    base = Preprocessing(class_names=("a", "b"), antialias=False)
    assert read_preprocessing(PUBLISHED, base) == Preprocessing(
        size=(384, 320),
        resize="squash",
        crop_fraction=0.95,
        interpolation="bilinear",
        mean=(0.4, 0.5, 0.6),
        std=(0.1, 0.2, 0.3),
        class_names=("a", "b"),
        antialias=False,
    )


@pytest.mark.parametrize("told", [{}, None, {"interpolation": "random", "crop_mode": "other"}])
def test_what_is_not_told_stays(told: Any) -> None:
    base = Preprocessing(size=96, resize="squash_crop", interpolation="nearest")
    assert read_preprocessing({"pretrained_cfg": told}, base) == base


@pytest.mark.parametrize(
    ("mode", "resize"), [("center", "crop"), ("squash", "squash"), ("border", "squash")]
)
def test_crop_modes(mode: str, resize: str) -> None:
    told = {"pretrained_cfg": {"crop_mode": mode}}
    assert read_preprocessing(told, Preprocessing(resize="squash_crop")).resize == resize
