from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import TransformerBlock
from keras_vit.layers.windows import from_windows, to_windows
from tests.helpers import normal, numpy, randomise


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
