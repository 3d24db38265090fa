from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.layers import LayerNorm
from tests.helpers import assert_close, check_layer, normal, numpy, randomise

TOKENS = normal(2, 5, 12)


def test_layer_norm_contract() -> None:
    check_layer(LayerNorm(), TOKENS, output_shape=(2, 5, 12), parameters=24)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_layer_norm_equals_that_of_keras(epsilon: float) -> None:
    layer, other = LayerNorm(epsilon), keras.layers.LayerNormalization(epsilon=epsilon)
    for norm in (layer, other):
        norm.build(TOKENS.shape)
    randomise(layer)
    other.set_weights(layer.get_weights())
    assert_close(layer(TOKENS * 3 + 5), other(TOKENS * 3 + 5), 5e-6)  # measured: 1e-6


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layer_norm_computes_in_float32(policy: str) -> None:
    tokens = TOKENS * 3e4  # whose squares are infinite in float16
    assert_close(LayerNorm(dtype=policy)(tokens), LayerNorm()(tokens), 2e-2)  # measured: 8e-3


@pytest.mark.parametrize(
    "arguments", [{"axis": 1}, {"axis": (-2, -1)}, {"scale": False}, {"center": False}]
)
def test_layer_norm_refuses_other_norms(arguments: dict) -> None:
    with pytest.raises(ValueError, match=r"`axis` must be -1, `scale` and `center`"):
        LayerNorm(**arguments)


def test_layer_norm_checks_epsilon() -> None:
    with pytest.raises(ValueError, match="`epsilon` must be"):
        LayerNorm(-1)


def test_layer_norm_has_no_mean_of_a_constant_token() -> None:
    assert not numpy(LayerNorm()(np.full((1, 3, 4), 7.0, "float32"))).any()
