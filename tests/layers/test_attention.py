from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import MultiHeadSelfAttention
from keras_vit.layers import attention as attention_module
from tests import reference
from tests.helpers import assert_close, check_layer, normal, numpy, randomise, weights_of

TOKENS = normal(2, 7, 12)  # B, T, D; heads K = 3 of d = 4


def attention(**kwargs: object) -> MultiHeadSelfAttention:
    layer = MultiHeadSelfAttention(3, **kwargs)
    layer.build(TOKENS.shape)
    return randomise(layer)


@pytest.mark.parametrize(
    ("bias", "parameters"), [(True, 4 * 12 * 12 + 4 * 12), (False, 4 * 12 * 12 + 12)]
)
def test_attention_contract(bias: bool, parameters: int) -> None:
    layer = MultiHeadSelfAttention(3, qkv_bias=bias, dropout_rate=0.3)
    check_layer(layer, TOKENS, output_shape=(2, 7, 12), parameters=parameters)


@pytest.mark.parametrize("bias", [True, False])
def test_attention_equals_the_equations(bias: bool) -> None:
    layer = attention(qkv_bias=bias)
    actual = layer(TOKENS, return_attention_scores=True)
    expected = zip(*(reference.msa(z, weights_of(layer), heads=3) for z in TOKENS), strict=True)
    for ours, theirs in zip(actual, expected, strict=True):
        assert_close(ours, np.stack(theirs), 5e-6)  # measured: 9e-7


def test_attention_equals_keras() -> None:
    layer = attention()
    other = keras.layers.MultiHeadAttention(3, 4)
    other.build(TOKENS.shape, TOKENS.shape)
    qkv, qkv_bias, out, out_bias = layer.get_weights()
    separate = zip(np.split(qkv, 3, axis=1), np.split(qkv_bias, 3), strict=True)
    values = [x for w, b in separate for x in (w.reshape(12, 3, 4), b.reshape(3, 4))]
    other.set_weights([*values, out.reshape(3, 4, 12), out_bias])
    assert_close(layer(TOKENS), other(TOKENS, TOKENS), 5e-6)  # measured: 7e-7


def test_attention_scores_are_returned_on_request() -> None:
    layer = attention(dtype="mixed_bfloat16")
    outputs, scores = layer(keras.Input((7, 12)), return_attention_scores=True)
    assert outputs.shape == (None, 7, 12)
    assert scores.shape == (None, 3, 7, 7)
    assert scores.dtype == "bfloat16"


def test_attention_weights_sum_to_one() -> None:
    _, scores = attention()(TOKENS, return_attention_scores=True)
    assert_close(numpy(scores).sum(-1), np.ones((2, 3, 7)), 1e-6)


def test_attention_does_not_see_the_order_of_tokens() -> None:
    layer, order = attention(), [4, 0, 6, 2, 5, 1, 3]
    assert_close(numpy(layer(TOKENS))[:, order], layer(TOKENS[:, order]), 2e-6)


def test_attention_dropout_drops_weights_after_the_softmax() -> None:
    """With values of one and an identity behind them, the output is the sum of kept weights."""
    layer = MultiHeadSelfAttention(1, dropout_rate=0.25)
    layer.build((1, 500, 2))
    identity = np.eye(2)
    layer.set_weights([np.zeros((2, 6)), np.array([0, 0, 0, 0, 1, 1.0]), identity, np.zeros(2)])
    tokens = normal(3, 500, 2)
    assert_close(layer(tokens), np.ones_like(tokens), 2e-5)  # inference: a sum of 500
    sums, scores = layer(tokens, training=True, return_attention_scores=True)
    kept = numpy(sums)[..., 0] * 0.75 * 500  # how many of the 500 equal weights, for each query
    assert_close(kept, kept.round(), 1e-2)
    assert abs(kept.mean() / 500 - 0.75) < 0.005  # its standard deviation is 0.0005
    assert kept.std() > 5  # drawn for every query
    assert_close(numpy(scores), np.full((3, 1, 500, 500), 1 / 500), 1e-8)  # before the dropout


def test_attention_needs_heads_of_equal_size() -> None:
    with pytest.raises(ValueError, match="Received: hidden_size=12, num_heads=5"):
        MultiHeadSelfAttention(5)(TOKENS)


def test_attention_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match="`num_heads` must be a positive integer"):
        MultiHeadSelfAttention(2.0)
    with pytest.raises(ValueError, match=r"`dropout_rate` must be a number in \[0, 1\)"):
        MultiHeadSelfAttention(2, dropout_rate=1.0)
    with pytest.raises(ValueError, match=r"`num_tokens` must be given .* of shape \(7, 12\)"):
        MultiHeadSelfAttention(3)(normal(7, 12))
    with pytest.raises(ValueError, match=r"if, and only if, .* Received: num_tokens=5"):
        MultiHeadSelfAttention(3)(TOKENS, num_tokens=5)


def test_attention_of_tokens_in_one_matrix_is_the_same() -> None:
    layer = MultiHeadSelfAttention(3)
    expected, scores = layer(TOKENS, return_attention_scores=True)
    batch, t, d = TOKENS.shape
    matrix = TOKENS.reshape(batch * t, d)
    found, same = layer(matrix, num_tokens=t, return_attention_scores=True)
    np.testing.assert_array_equal(numpy(found), numpy(expected).reshape(matrix.shape))
    np.testing.assert_array_equal(numpy(same), numpy(scores))
    symbolic = keras.Input((d,))
    z, weights = layer(symbolic, num_tokens=t, return_attention_scores=True)
    assert (z.shape, weights.shape) == ((None, d), (None, 3, t, t))


def test_outputs_of_the_first_tokens_are_the_same() -> None:
    layer = attention()
    expected, scores = layer(TOKENS, return_attention_scores=True)
    batch, t, d = TOKENS.shape
    found, some = layer(TOKENS, return_attention_scores=True, num_queries=2)
    assert_close(found, numpy(expected)[:, :2], 1e-6)  # measured: 2.4e-7
    assert_close(some, numpy(scores)[:, :, :2], 1e-6)
    matrix = layer(TOKENS.reshape(batch * t, d), num_tokens=t, num_queries=2)
    assert_close(matrix, numpy(found).reshape(batch * 2, d), 1e-6)
    z, weights = layer(keras.Input((t, d)), return_attention_scores=True, num_queries=2)
    assert (z.shape, weights.shape) == ((None, 2, d), (None, 3, 2, t))
    assert layer(keras.Input((d,)), num_tokens=t, num_queries=2).shape == (None, d)


@pytest.mark.parametrize("bias", [True, False])
def test_the_scale_may_be_in_the_weights(bias: bool) -> None:
    layer = attention(qkv_bias=bias)
    z, weights = layer(TOKENS, return_attention_scores=True)
    layer.fold_scale()
    found = layer(TOKENS, return_attention_scores=True)
    assert_close(found[0], z, 0)  # d = 4: the scale is a power of two
    assert_close(found[1], weights, 0)


@pytest.mark.parametrize("folded", [False, True])
def test_fused_kernel_is_the_same_attention(folded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, inputs = attention(), ops.convert_to_tensor(TOKENS)
    expected = numpy(layer(inputs))
    if folded:
        layer.fold_scale()
    calls, kernel = [], ops.dot_product_attention

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(attention_module, "has_fused_kernel", lambda: True)
    monkeypatch.setattr(ops, "dot_product_attention", counted)
    assert_close(layer(inputs), expected, 1e-5)
    # An odd number of tokens is padded in training.
    for tokens in (inputs, inputs[:, :6]):
        trained = layer(tokens, training=True)
        assert_close(trained, numpy(layer(tokens, training=False)), 1e-5)
    assert [call["mask"] is None for call in calls] == [True, False, True, True, True]
    z, scores = layer(inputs, return_attention_scores=True)
    assert_close(z, expected, 1e-5)
    assert scores.shape == (2, 3, 7, 7)
    attention(dropout_rate=0.5)(inputs, training=True)
    assert len(calls) == 5  # where the weights are needed there is no kernel
