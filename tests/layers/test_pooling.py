from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import AttentionPooling, TokenPooling
from tests import reference
from tests.helpers import assert_close, check_layer, normal, randomise, weights_of

TOKENS = normal(2, 7, 12)
MODES = [("token", True), ("gap", True), ("gap", False), ("max", True), ("max", False)]


@pytest.mark.parametrize(("mode", "class_token"), MODES)
def test_token_pooling_contract(mode: str, class_token: bool) -> None:
    layer = TokenPooling(mode, class_token=class_token)
    check_layer(layer, TOKENS, output_shape=(2, 12), parameters=0)


@pytest.mark.parametrize(("mode", "class_token"), MODES)
def test_token_pooling_equals_the_equations(mode: str, class_token: bool) -> None:
    expected = np.stack([reference.pool(z, mode, class_token) for z in TOKENS])
    assert_close(TokenPooling(mode, class_token=class_token)(TOKENS), expected, 1e-6)


def test_token_pooling_worked_by_hand() -> None:
    tokens = np.array([[[7, 0], [1, 5], [3, -1]]], "float32")
    results = {
        ("token", True): [7, 0],
        ("gap", True): [2, 2],
        ("max", True): [3, 5],
        ("max", False): [7, 5],
    }
    for (mode, class_token), expected in results.items():
        assert_close(TokenPooling(mode, class_token)(tokens), [expected], 0.0)


def test_token_pooling_needs_a_class_token() -> None:
    with pytest.raises(ValueError, match="needs a class token; use 'gap' or 'map' without one"):
        TokenPooling("token", class_token=False)


def test_token_pooling_suggests_the_nearest_mode() -> None:
    with pytest.raises(ValueError, match=r"`mode` must be one of .* Did you mean 'token'"):
        TokenPooling("tokens")


def test_attention_pooling_contract() -> None:
    parameters = 12 + 4 * (12 * 12 + 12) + 2 * 12 + 12 * 5 + 5 + 5 * 12 + 12
    layer = AttentionPooling(3, 5, gelu="exact", epsilon=1e-5)
    check_layer(layer, TOKENS, output_shape=(2, 12), parameters=parameters)


@pytest.mark.parametrize(("gelu", "epsilon"), [("tanh", 1e-6), ("exact", 0.1)])
def test_attention_pooling_equals_the_equations(gelu: str, epsilon: float) -> None:
    layer = AttentionPooling(3, 5, gelu=gelu, epsilon=epsilon)
    layer.build(TOKENS.shape)
    randomise(layer)
    expected = [reference.attention_pool(z, weights_of(layer), 3, gelu, epsilon) for z in TOKENS]
    assert_close(layer(TOKENS), np.stack(expected), 5e-6)  # measured: 7e-7


def test_attention_pooling_needs_heads_of_equal_size() -> None:
    with pytest.raises(ValueError, match="Received: hidden_size=12, num_heads=5"):
        AttentionPooling(5, 7)(TOKENS)
