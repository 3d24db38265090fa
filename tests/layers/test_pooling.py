from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import AttentionPooling, TokenPooling
from tests import reference
from tests.helpers import assert_close, check_layer, normal, randomise, weights_of

TOKENS = normal(2, 7, 12)
MODES = [("token", 1), ("gap", 1), ("gap", 0), ("gap", 3), ("max", 2), ("max", 0), ("token_gap", 2)]


@pytest.mark.parametrize(("mode", "prefix_tokens"), MODES)
def test_token_pooling_contract(mode: str, prefix_tokens: int) -> None:
    layer = TokenPooling(mode, prefix_tokens=prefix_tokens)
    width = 24 if mode == "token_gap" else 12
    check_layer(layer, TOKENS, output_shape=(2, width), parameters=0)


@pytest.mark.parametrize(("mode", "prefix_tokens"), MODES)
def test_token_pooling_equals_the_equations(mode: str, prefix_tokens: int) -> None:
    expected = np.stack([reference.pool(z, mode, prefix_tokens) for z in TOKENS])
    assert_close(TokenPooling(mode, prefix_tokens=prefix_tokens)(TOKENS), expected, 1e-6)


def test_token_pooling_worked_by_hand() -> None:
    tokens = np.array([[[7, 0], [1, 5], [3, -1]]], "float32")
    results = {
        ("token", 1, 0): [7, 0],
        ("token", 2, 1): [1, 5],
        ("gap", 1, 0): [2, 2],
        ("gap", 2, 0): [3, -1],
        ("max", 1, 0): [3, 5],
        ("max", 0, 0): [7, 5],
        ("token_gap", 1, 0): [7, 0, 2, 2],
        ("token_gap", 2, 1): [1, 5, 3, -1],
    }
    for (mode, prefix_tokens, index), expected in results.items():
        assert_close(TokenPooling(mode, prefix_tokens, index)(tokens), [expected], 0.0)


@pytest.mark.parametrize(("prefix_tokens", "index"), [(0, 0), (1, 1)])
def test_token_pooling_needs_its_token(prefix_tokens: int, index: int) -> None:
    with pytest.raises(ValueError, match="`mode` must be 'gap' or 'max' if there is no"):
        TokenPooling("token", prefix_tokens, index)


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


def test_attention_pooling_checks_epsilon() -> None:
    with pytest.raises(ValueError, match=r"`epsilon` must be a positive number. .* epsilon=0"):
        AttentionPooling(3, 5, epsilon=0)
