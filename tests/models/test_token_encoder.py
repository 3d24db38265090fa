from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_vit import models
from keras_vit.layers.token_reduction import take_tokens
from keras_vit.models.token_encoder import TokenEncoder
from tests.helpers import assert_close, normal, numpy
from tests.tasks.masked import (
    PATCHES,
    VALUES,
    WIDTH,
    H,
    W,
    images,
    network,
    random_network,
)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_patches_are_flattened_row_column_channel(dtype: str) -> None:
    x = images(2)
    found = numpy(TokenEncoder(network(dtype)).patches(x))
    assert found.shape == (2, PATCHES, VALUES)
    # Patch 7 is that of row 1 and column 2 of the grid.
    np.testing.assert_array_equal(found[1, 7], x[1, 4:8, 4:6].ravel())


def test_images_are_put_together_again() -> None:
    encoder, x = TokenEncoder(network()), images(3)
    np.testing.assert_array_equal(numpy(encoder.images(encoder.patches(x))), x)


def test_images_lack_what_no_patch_covers() -> None:
    encoder = TokenEncoder(network(image_size=(H + 3, W + 1), remainder="drop"))
    x = normal(2, H + 3, W + 1, 3)
    np.testing.assert_array_equal(numpy(encoder.images(encoder.patches(x))), x[:, :H, :W])


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"pre_norm": True}, {"class_token": False}])
def test_layers_one_by_one_are_the_network(changes: dict[str, Any]) -> None:
    whole = random_network(pooling="none", **changes)
    encoder, x = TokenEncoder(whole), images(2)
    tokens = encoder.patch_encoder(encoder.cut(x))
    assert tokens.shape == (2, PATCHES + 1 + changes.get("class_token", True), WIDTH)
    assert_close(encoder.encode(tokens, training=False), whole(x), 1e-5)  # 2e-6 was seen


def test_what_the_blocks_learn_is_the_network_s() -> None:
    whole = network()
    assert [id(block) for block in TokenEncoder(whole).blocks] == [
        id(whole.get_layer(name)) for name in ("block_00", "block_01")
    ]


def test_take_tokens_by_hand() -> None:
    tokens = np.arange(2 * 3 * 2, dtype="float32").reshape(2, 3, 2)
    found = numpy(take_tokens(tokens, np.array([[2, 0, 2, 1], [1, 1, 0, 2]])))
    assert found[0].tolist() == [[4, 5], [0, 1], [4, 5], [2, 3]]
    assert found[1].tolist() == [[8, 9], [8, 9], [6, 7], [10, 11]]


def test_hybrid_is_refused() -> None:
    hybrid = models.size("R+Ti/16").replace(image_size=(32, 32))
    with pytest.raises(ValueError, match=r"must take its patches from pixels:.*stem_blocks=\("):
        TokenEncoder(models.build(hybrid))


def test_network_for_any_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"with a fixed image size..*image_size=\(None, None\)"):
        TokenEncoder(network(image_size=(None, None), position_grid=(3, 5)))
