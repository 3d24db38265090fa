from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import MergingBlock, TransformerBlock
from tests import reference
from tests.helpers import assert_close, normal, numpy, randomise, weights_of
from tests.layers.test_token_reduction import matched_slowly, merged_slowly

TOKENS = normal(2, 11, 12)  # B, T, D; K = 3, M = 7; p = 2
SIZES = np.random.default_rng(6).integers(1, 5, (2, 11)).astype("float32")


def block(**kwargs: Any) -> MergingBlock:
    layer = MergingBlock(3, 7, **kwargs)
    layer.build(TOKENS.shape)
    return randomise(layer)


def plain(layer: MergingBlock) -> TransformerBlock:
    """The ordinary block with the same weights."""
    other = TransformerBlock(3, 7)
    other.build(TOKENS.shape)
    other.set_weights(layer.get_weights())
    return other


def block_slowly(z: np.ndarray, sizes: np.ndarray, w: dict, p: int, r: int) -> tuple:
    """Section 3 of ToMe within equations 2 and 3 of the ViT paper, head by head."""
    x = reference.layer_norm(z, reference.below(w, "norm_1"))
    q, k, v = np.split(reference.dense(x, reference.below(w, "attention/qkv")), 3, axis=1)
    heads = []
    for head in (slice(0, 4), slice(4, 8), slice(8, 12)):
        scores = sizes * np.exp(q[:, head] @ k[:, head].T / 4**0.5)  # exp(x + log s)
        heads.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, head])
    z = z + reference.dense(np.concatenate(heads, axis=1), reference.below(w, "attention/out"))
    keys = (k[:, 0:4] + k[:, 4:8] + k[:, 8:12]) / 3
    patches, counts = merged_slowly(z[p:], sizes[p:], *matched_slowly(keys[p:], r))
    z, sizes = np.concatenate([z[:p], patches]), np.concatenate([sizes[:p], counts])
    x = reference.layer_norm(z, reference.below(w, "norm_2"))
    return z + reference.mlp(x, reference.below(w, "mlp")), sizes


def test_merging_block_equals_the_paper_step_by_step() -> None:
    layer = block(num_reduced=3, prefix_tokens=2)
    z, sizes = layer(TOKENS, SIZES)
    assert tuple(z.shape) == (2, 8, 12)
    for i in range(2):
        expected, counts = block_slowly(TOKENS[i], SIZES[i], weights_of(layer), 2, 3)
        assert_close(z[i], expected, 1e-5)  # measured: 1.7e-6
        assert_close(sizes[i], counts, 0.0)
    assert_close(numpy(sizes).sum(axis=1), SIZES.sum(axis=1), 0.0)


def test_merging_block_contract() -> None:
    layer = block(num_reduced=3, prefix_tokens=2, gelu="exact", layer_scale=0.7)
    config = layer.get_config()
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is MergingBlock
    assert copy.get_config() == config
    z, sizes = layer(keras.Input((11, 12)))
    assert (z.shape, sizes.shape) == ((None, 8, 12), (None, 8))
    assert layer.compute_output_shape((None, 11, 12)) == ((None, 8, 12), (None, 8))


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    # measured: 0.0052, 0.065, 0.0092
    [("mixed_float16", 0.02), ("mixed_bfloat16", 0.2), ("float16", 0.03)],
)
def test_merging_block_in_half_precision(policy: str, tolerance: float) -> None:
    layer = block(num_reduced=3, prefix_tokens=2)
    half = MergingBlock.from_config({**layer.get_config(), "dtype": policy})
    half.build(TOKENS.shape)
    half.set_weights(layer.get_weights())
    z, sizes = half(TOKENS, SIZES)
    kept = "float16" if policy == "float16" else "float32"
    assert {keras.backend.standardize_dtype(x.dtype) for x in (z, sizes)} == {kept}
    assert_close(numpy(sizes).sum(axis=1), SIZES.sum(axis=1), 0.0)
    assert_close(z, layer(TOKENS, SIZES)[0], tolerance)


def test_merging_block_has_the_weights_of_the_ordinary_block() -> None:
    layer = block()
    assert list(weights_of(layer)) == list(weights_of(plain(layer)))


def test_merging_nothing_is_the_ordinary_block() -> None:
    for changes in ({"num_reduced": 0}, {"num_reduced": 8, "prefix_tokens": 10}):
        layer = block(**changes)
        z, sizes = layer(TOKENS)
        assert_close(z, plain(layer)(TOKENS), 0.0)
        assert_close(sizes, np.ones((2, 11)), 0.0)


def test_prefix_tokens_are_never_merged() -> None:
    """Also where they are the most alike of all."""
    tokens = TOKENS.copy()
    tokens[:, :4] = tokens[:, :1]
    _, sizes = block(num_reduced=4, prefix_tokens=4)(tokens)
    sizes = numpy(sizes)
    assert np.all(sizes[:, :4] == 1)
    assert np.all(sizes[:, 4:].sum(axis=1) == 7)


def test_merging_equal_tokens_changes_nothing() -> None:
    """Two blocks: the second attends to a merged token as if it were still several."""
    first, second = block(num_reduced=4), block(num_reduced=0)
    pairs = np.repeat(TOKENS[:, 1:6], 2, axis=1)
    tokens = np.concatenate([TOKENS[:, :1], pairs], axis=1)  # (2, 11, 12)
    expected = numpy(plain(second)(plain(first)(tokens)))[:, 0]
    merged, sizes = first(tokens)
    assert sorted(numpy(sizes)[0].tolist()) == [1, 1, 1, 2, 2, 2, 2]
    assert_close(second(merged, sizes)[0][:, 0], expected, 1e-5)  # measured: 1.9e-6
    forgotten = numpy(second(merged)[0])[:, 0]
    assert np.abs(forgotten - expected).max() > 0.1  # measured: 0.6


def test_gradients_reach_every_weight_through_a_merge() -> None:
    inputs = keras.Input((11, 12))
    layer = block(num_reduced=3, stochastic_depth_rate=0.1)
    model = keras.Model(inputs, layer(inputs)[0])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = layer.get_weights()
    model.train_on_batch(TOKENS, normal(2, 8, 12, seed=8))
    moved = [np.any(a != b) for a, b in zip(before, layer.get_weights(), strict=True)]
    assert all(moved)
