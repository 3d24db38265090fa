from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras.backend import backend

from keras_vit.layers import TransformerBlock
from keras_vit.layers.transformer_block import from_windows, to_windows
from tests import reference
from tests.helpers import assert_close, check_layer, normal, numpy, randomise, weights_of

TOKENS = normal(2, 5, 12)  # B, T, D; K = 3, M = 7


def block(**kwargs: Any) -> TransformerBlock:
    layer = TransformerBlock(3, 7, **kwargs)
    layer.build(TOKENS.shape)
    return randomise(layer)


def test_transformer_block_contract() -> None:
    layer = TransformerBlock(
        3,
        7,
        qkv_bias=False,
        gelu="exact",
        epsilon=1e-5,
        layer_scale=0.7,
        dropout_rate=0.1,
        attention_dropout_rate=0.2,
        stochastic_depth_rate=0.3,
    )
    attention, mlp, norms = 4 * 12 * 12 + 12, 2 * 12 * 7 + 7 + 12, 2 * 2 * 12
    parameters = attention + mlp + norms + 2 * 12
    check_layer(layer, TOKENS, output_shape=(2, 5, 12), parameters=parameters, half_output=False)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_the_sums_of_a_block_are_float32(policy: str) -> None:
    layer = TransformerBlock(3, 7, dtype=policy)
    layer.build(TOKENS.shape)
    layer.set_weights([np.zeros(weight.shape) for weight in layer.weights])
    fine = TOKENS * np.float32(1 + 2**-13)  # neither half precision keeps that bit
    np.testing.assert_array_equal(numpy(layer(fine)), fine)


@pytest.mark.parametrize("layer_scale", [None, 0.5])
@pytest.mark.parametrize(("gelu", "epsilon"), [("tanh", 1e-6), ("exact", 0.1)])
def test_transformer_block_equals_the_equations(
    gelu: str, epsilon: float, layer_scale: float | None
) -> None:
    layer = block(gelu=gelu, epsilon=epsilon, layer_scale=layer_scale)
    expected = [reference.block(z, weights_of(layer), 3, gelu, epsilon) for z in TOKENS]
    assert_close(layer(TOKENS), np.stack(expected), 5e-6)  # measured: 1.4e-6


def test_transformer_block_hands_the_rates_on() -> None:
    layer = block(dropout_rate=0.1, attention_dropout_rate=0.2, stochastic_depth_rate=0.3)
    assert layer.dropout.rate == layer.mlp.dropout_rate == 0.1
    assert layer.attention.dropout_rate == layer.attention.dropout.rate == 0.2
    assert layer.drop_path.rate == 0.3


def test_transformer_block_drops_each_branch_of_each_example() -> None:
    """The outcome is one of four: neither branch, either alone, or both, each scaled by 2."""
    layer = block(stochastic_depth_rate=0.5)
    z = normal(1, 5, 12)
    outputs = numpy(layer(np.repeat(z, 200, axis=0), training=True))
    attended = z + 2 * numpy(layer.attention(layer.norm_1(z)))
    possible = [
        numpy(y)[0] for x in (z, attended) for y in (x, x + 2 * numpy(layer.mlp(layer.norm_2(x))))
    ]
    nearest = [np.abs(outputs - y).max(axis=(1, 2)) < 1e-4 for y in possible]
    assert np.sum(nearest) == 200  # each example is exactly one of them
    assert min(np.sum(nearest, axis=1)) > 20  # 50 expected of each


def test_transformer_block_drops_after_the_attention() -> None:
    """With both branches constant, dropout shows as zeros and doubled values in each."""
    layer = TransformerBlock(1, 8, dropout_rate=0.5)
    layer.build((1, 500, 8))
    weights = {name: np.zeros(w.shape) for name, w in weights_of(layer).items()}
    weights["attention/out/bias"] = np.ones(8)
    weights["mlp/reduce/bias"] = np.full(8, 10.0)
    layer.set_weights([weights[name] for name in weights_of(layer)])
    outputs = numpy(layer(np.zeros((1, 500, 8), "float32"), training=True))
    values, counts = np.unique(outputs, return_counts=True)
    assert values.tolist() == [0, 2, 20, 22]
    assert_close(counts / outputs.size, np.full(4, 0.25), 0.04)  # standard deviation 0.007


def test_transformer_block_is_deterministic_at_inference() -> None:
    plain = block()
    layer = block(dropout_rate=0.5, attention_dropout_rate=0.5, stochastic_depth_rate=0.5)
    layer.set_weights(plain.get_weights())
    assert_close(layer(TOKENS), plain(TOKENS), 0.0)


@pytest.mark.parametrize(
    "name", ["dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"]
)
def test_transformer_block_checks_its_rates(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be a number in \[0, 1\)\. Received: .*=1.5"):
        TransformerBlock(3, 7, **{name: 1.5})


def test_transformer_block_checks_epsilon() -> None:
    with pytest.raises(ValueError, match=r"`epsilon` must be a positive number. .* epsilon=-1e-06"):
        TransformerBlock(3, 7, epsilon=-1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_scalings_may_be_in_the_weights(bias: bool) -> None:
    layer = block(qkv_bias=bias)
    expected = numpy(layer(TOKENS))
    for _ in range(2):  # a second time changes nothing
        layer.fold()
        # Measured: 5e-7, on PyTorch 4e-6.
        assert_close(layer(TOKENS), expected, 3e-6 if backend() != "torch" else 1e-5)
    # Without a bias there is no place for the offset.
    assert (layer.norm_1.folded, layer.norm_2.folded) == (bias, True)
    assert np.all(numpy(layer.norm_2.gamma) == 1)
    assert np.all(numpy(layer.norm_2.beta) == 0)


def test_windows_are_squares_of_neighbors_and_return() -> None:
    patches = normal(2, 5, 7, 4)
    windows = numpy(to_windows(patches, 3))
    assert windows.shape == (2 * 2 * 3, 9, 4)
    np.testing.assert_array_equal(windows[1].reshape(3, 3, 4), patches[0, :3, 3:6])
    assert not windows[5].reshape(3, 3, 4)[2].any()  # the row below the last
    np.testing.assert_array_equal(numpy(from_windows(windows, (5, 7), 3)), patches)


def test_block_attends_within_windows_and_leaves_prefix_tokens() -> None:
    settings = {"num_heads": 2, "mlp_dim": 9, "position_grid": (4, 6)}
    block = TransformerBlock(window_size=2, **settings)
    tokens = normal(1, 25, 8)
    block.build(tokens.shape)
    randomise(block)
    before = numpy(block(tokens))
    changed = tokens.copy()
    changed[0, 1] *= -1  # the first patch
    moved = np.abs(numpy(block(changed)) - before).max(axis=-1)[0, 1:].reshape(4, 6) > 1e-6
    assert moved[:2, :2].all()
    assert moved.sum() == 4
    changed = tokens.copy()
    changed[0, 0] *= -1  # a prefix token
    moved = np.abs(numpy(block(changed)) - before).max(axis=-1)[0] > 1e-6
    assert moved.tolist() == [True] + [False] * 24


def test_one_window_is_attention_among_all_patches() -> None:
    settings = {"num_heads": 2, "mlp_dim": 9, "position_grid": (4, 4)}
    blocks = [TransformerBlock(window_size=size, **settings) for size in (4, None)]
    tokens = normal(2, 16, 8)
    for block in blocks:
        block.build(tokens.shape)
    blocks[1].set_weights(randomise(blocks[0]).get_weights())
    one, other = (numpy(block(tokens)) for block in blocks)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_side_of_a_window_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`window_size` must be"):
        TransformerBlock(2, 9, window_size=0)
    with pytest.raises(ValueError, match=r"`position_grid` must be .* of the patches"):
        TransformerBlock(2, 9, window_size=2)
