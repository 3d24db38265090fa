from __future__ import annotations

import pytest

from keras_vit.layers import ReducingBlock


@pytest.mark.parametrize(
    ("tokens", "left"), [(197, 189), (18, 10), (17, 9), (6, 4), (3, 2), (2, 2), (1, 1)]
)
def test_at_most_half_of_the_patches_go(tokens: int, left: int) -> None:
    assert ReducingBlock(3, 7, num_reduced=8, prefix_tokens=1).tokens_after(tokens) == left


def test_reducing_block_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match=r"`num_reduced` must be a non-negative integer.*=-1"):
        ReducingBlock(3, 7, num_reduced=-1)
    with pytest.raises(ValueError, match=r"`prefix_tokens` must be a non-negative integer.*=1\.5"):
        ReducingBlock(3, 7, prefix_tokens=1.5)
    with pytest.raises(ValueError, match=r"`inputs` must have a known number .* \(B, None, D\)"):
        ReducingBlock(3, 7).tokens_after(None)
