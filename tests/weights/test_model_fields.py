from __future__ import annotations

from typing import Any

import pytest

from keras_vit.models.published import PUBLISHED
from keras_vit.weights.model_fields import fields_of_source

NOTHING = dict.fromkeys(("pooling", "register_tokens", "representation_size"))


@pytest.mark.parametrize(
    "field",
    [
        {"key_bias": False},
        {"swiglu": True},
        {"mlp_norm": True},
        {"mask_token": True},
        {"position_rescale": 2.0},
        {"register_tokens": 4},
        {"gelu": "quick"},
    ],
)
def test_fields_of_source_are_those_of_the_weights(field: dict[str, Any]) -> None:
    found = fields_of_source(PUBLISHED["DINOv3S16"], {"hidden_size": 7, **field}, NOTHING, True)
    assert found.items() >= field.items()
    assert "hidden_size" not in found


def test_fields_of_source_prefer_the_choices_of_the_user() -> None:
    chosen = NOTHING | {"register_tokens": 0, "pooling": "max"}
    inferred = {"register_tokens": 4, "pooling": "token", "norm_after_pooling": True}
    found = fields_of_source(PUBLISHED["DINOv2S14"], inferred, chosen, True)
    assert (found["register_tokens"], found["pooling"]) == (0, "max")
    assert found["norm_after_pooling"] is True


def test_registers_without_weights_have_no_position() -> None:
    chosen = NOTHING | {"register_tokens": 4}
    config = PUBLISHED["DINOv2S14"]
    assert fields_of_source(config, {}, chosen, True)["prefix_position"] is False
    assert "prefix_position" not in fields_of_source(config, {}, NOTHING, True)
    assert "prefix_position" not in fields_of_source(config, {"gelu": "tanh"}, chosen, True)


@pytest.mark.parametrize(
    ("name", "pooling", "fields"),
    [
        ("EVA02Ti14", None, {"distillation_head": False}),
        ("EVA02Ti14", "none", {"norm_after_pooling": False, "distillation_head": False}),
        ("ViTB16", None, {"norm_after_pooling": False}),
        ("ViTB16", "gap", {"distillation_head": False}),
    ],
)
def test_fields_without_a_meaning_are_switched_off(
    name: str, pooling: str | None, fields: dict[str, bool]
) -> None:
    chosen = NOTHING | {"pooling": pooling}
    found = fields_of_source(PUBLISHED[name], {}, chosen, True)
    assert {name: value for name, value in found.items() if value is False} == fields
