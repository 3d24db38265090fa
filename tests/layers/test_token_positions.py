from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.layers import TokenPositions
from tests.helpers import numpy

PATCHES = np.zeros((2, 3, 5, 12), "float32")


def test_positions_change_only_in_training() -> None:
    layer = TokenPositions("rotary", 8, 1, position_shift=0.2, position_rescale=2.0, seed=3)
    still = TokenPositions("rotary", 8, 1)(PATCHES, training=True)
    assert (numpy(layer(PATCHES)) == numpy(still)).all()
    first, second = (numpy(layer(PATCHES, training=True)) for _ in range(2))
    assert first.shape == (1, 16, 16)
    assert abs(first - second).max() > 0.01
    assert (first[0, 0] == second[0, 0]).all()  # the prefix token


def test_rescaling_keeps_rows_and_columns_in_proportion() -> None:
    layer = TokenPositions("rotary", 4, position_rescale=2.0, seed=1)
    for _ in range(5):
        cos, sin = np.split(numpy(layer(np.zeros((1, 4, 4, 1)), training=True))[0], 2, axis=-1)
        angles = np.arctan2(sin, cos).reshape(4, 4, 4)
        assert angles[:, 0, 0] == pytest.approx(angles[0, :, 1], abs=1e-5)


def test_positions_of_a_layer_are_the_same_after_reload() -> None:
    layer = TokenPositions("relative", 8, 1)
    copy = TokenPositions.from_config(layer.get_config())
    assert (numpy(copy(PATCHES)) == numpy(layer(PATCHES))).all()


def test_kinds_without_attention_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`position_embedding` must be one of .*'rotary'"):
        TokenPositions("learned", 8)


@pytest.mark.parametrize("kind", ["rotary", "learned_rotary"])
def test_a_model_for_any_size_computes_as_one_of_a_size(kind: str) -> None:
    config = models.ViTConfig(
        hidden_size=24, num_layers=2, num_heads=3, mlp_dim=16, patch_size=4, image_size=(8, 12),
        classes=4, position_embedding=kind,
    )  # fmt: skip
    fixed = models.build(config)
    fixed.get_layer("head").kernel.assign(keras.random.normal((24, 4), seed=1))
    any_size = models.build(config.replace(image_size=(None, None), position_grid=(2, 3)))
    any_size.set_weights(fixed.get_weights())
    images = keras.random.normal((2, 8, 12, 3), seed=2)
    assert numpy(any_size(images)) == pytest.approx(numpy(fixed(images)), abs=1e-6)
    assert any_size(keras.random.normal((1, 12, 20, 3), seed=2)).shape == (1, 4)


def test_relative_positions_need_a_fixed_size() -> None:
    with pytest.raises(ValueError, match="'relative' needs a fixed `image_size`"):
        models.size("Micro/4").replace(position_embedding="relative", image_size=(None, None))


def test_random_positions_must_be_rotary() -> None:
    with pytest.raises(ValueError, match="must be None unless positions are rotary"):
        models.size("Micro/4").replace(position_rescale=2.0)
