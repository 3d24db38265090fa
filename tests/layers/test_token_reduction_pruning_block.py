from __future__ import annotations

from typing import Any

import pytest

from keras_vit.layers import PruningBlock, TransformerBlock
from tests.helpers import assert_close, check_layer, normal, numpy, randomise

TOKENS = normal(2, 11, 12)  # B, T, D; K = 3, M = 7; p = 2


def block(**kwargs: Any) -> PruningBlock:
    layer = PruningBlock(3, 7, **kwargs)
    layer.build(TOKENS.shape)
    return randomise(layer)


def plain(layer: PruningBlock) -> TransformerBlock:
    """The ordinary block with the same weights."""
    other = TransformerBlock(3, 7)
    other.build(TOKENS.shape)
    other.set_weights(layer.get_weights())
    return other


@pytest.mark.slow
def test_pruning_block_contract() -> None:
    layer = PruningBlock(3, 7, num_reduced=3, prefix_tokens=2)
    parameters = 4 * 12 * 12 + 4 * 12 + 2 * 12 * 7 + 7 + 12 + 4 * 12
    check_layer(layer, TOKENS, output_shape=(2, 8, 12), parameters=parameters, half_output=False)


def test_those_go_that_the_class_token_attends_to_least() -> None:
    layer = block(num_reduced=3, prefix_tokens=2)
    full, pruned = numpy(plain(layer)(TOKENS)), numpy(layer(TOKENS))
    _, scores = layer.attention(layer.norm_1(TOKENS), return_attention_scores=True)
    for z, found, weights in zip(full, pruned, numpy(scores), strict=True):
        attended = weights[:, 0, 2:].mean(axis=0)
        kept = [0, 1, *(2 + i for i in range(9) if (attended > attended[i]).sum() < 6)]
        assert_close(found, z[kept], 5e-6)


def test_pruning_nothing_is_the_ordinary_block() -> None:
    for changes in ({"num_reduced": 0}, {"num_reduced": 8, "prefix_tokens": 10}):
        layer = block(**changes)
        assert_close(layer(TOKENS), plain(layer)(TOKENS), 0.0)


def test_pruning_block_needs_a_class_token() -> None:
    with pytest.raises(ValueError, match=r"`prefix_tokens` must be at least 1, .*prefix_tokens=0"):
        PruningBlock(3, 7, prefix_tokens=0)
