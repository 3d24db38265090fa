from __future__ import annotations

import numpy as np
import pytest

from keras_vit.weights.checkpoint import grid_of, traits_of, variables_of
from tests.helpers import tiny_model


def test_variables_of_have_their_documented_paths() -> None:
    paths = list(variables_of(tiny_model(num_layers=1, representation_size=17, dropout_rate=0.1)))
    layers = ("norm_1", "attention/qkv", "attention/out", "norm_2", "mlp/expand", "mlp/reduce")
    pairs = [("gamma", "beta") if "norm" in layer else ("kernel", "bias") for layer in layers]
    assert paths == [
        *(f"patch_encoder/{name}" for name in ("class_token", "class_position", "position")),
        *(f"patch_encoder/projection/{name}" for name in ("kernel", "bias")),
        *(f"block_00/{a}/{b}" for a, pair in zip(layers, pairs, strict=True) for b in pair),
        *("encoder_norm/gamma", "encoder_norm/beta"),
        *("pre_logits/kernel", "pre_logits/bias", "head/kernel", "head/bias"),
    ]


@pytest.mark.parametrize(
    ("shape", "grid"),
    [((5, 7, 3), (5, 7)), ((49, 3), (7, 7)), ((35, 3), None), ((1, 3), (1, 1))],
)
def test_grid_of(shape: tuple[int, ...], grid: tuple[int, int] | None) -> None:
    assert grid_of(np.zeros(shape)) == grid


def test_traits_of_a_whole_model() -> None:
    model = tiny_model(representation_size=17)
    tensors = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    assert traits_of(tensors) == {
        "hidden_size": 24,
        "num_layers": 2,
        "mlp_dim": 29,
        "classes": 11,
        "class_token": True,
        "pooling": "token",
        "representation_size": 17,
        "position_embedding": "learned",
        "position_grid": (5, 7),
    }


def test_traits_of_two_dimensional_positions() -> None:
    model = tiny_model(position_embedding="learned_2d")
    traits = traits_of({name: np.asarray(v) for name, v in variables_of(model).items()})
    assert (traits["position_embedding"], traits["position_grid"]) == ("learned_2d", (5, 7))


@pytest.mark.parametrize("pooling", ["gap", "map"])
def test_traits_of_a_backbone_without_a_class_token(pooling: str) -> None:
    model = tiny_model(classes=0, class_token=False, pooling=pooling, position_embedding="none")
    traits = traits_of({name: np.asarray(v) for name, v in variables_of(model).items()})
    assert (traits["classes"], traits["class_token"], traits["pooling"]) == (0, False, pooling)
    assert traits["representation_size"] is None
    assert "position_grid" not in traits
