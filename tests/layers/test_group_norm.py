from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.layers import GroupNorm
from tests.helpers import assert_close, check_layer, normal, numpy, randomise

IMAGES = 3 * normal(2, 5, 7, 96) + normal(96, seed=4)  # 32 groups of 3 channels, each its own mean


def norm(**kwargs: float) -> GroupNorm:
    layer = GroupNorm(**kwargs)
    layer.build(IMAGES.shape)
    return randomise(layer)


def test_group_norm_contract() -> None:
    layer = GroupNorm(epsilon=1e-5, gamma_initializer="zeros")
    check_layer(layer, IMAGES, output_shape=IMAGES.shape, parameters=2 * 96)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_group_norm_equals_keras(epsilon: float) -> None:
    layer = norm(epsilon=epsilon)
    other = keras.layers.GroupNormalization(32, epsilon=epsilon)
    other.build(IMAGES.shape)
    other.set_weights(layer.get_weights())
    assert_close(layer(IMAGES), other(IMAGES), 5e-6)  # measured: 7.2e-7


def test_group_norm_gives_every_group_mean_0_and_variance_1() -> None:
    groups = numpy(GroupNorm()(IMAGES)).reshape(2, 5 * 7, 32, 3)
    assert_close(groups.mean((1, 3)), np.zeros((2, 32)), 1e-6)
    assert_close(groups.var((1, 3)), np.ones((2, 32)), 5e-6)  # measured: 6e-7


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_group_norm_takes_the_statistics_in_float32(policy: str) -> None:
    """The squares of these values exceed float16, and their sums have more digits than bfloat16."""
    images = numpy(
        keras.ops.cast(keras.ops.cast(400 * IMAGES, policy.removeprefix("mixed_")), "float32")
    )
    outputs = keras.ops.cast(norm(dtype=policy)(images), "float32")
    assert_close(outputs, norm()(images), 0.05)  # measured: 0.014


def test_group_norm_of_unknown_size() -> None:
    layer = GroupNorm()
    assert layer(keras.Input((None, 7, 96))).shape == (None, None, 7, 96)


def test_group_norm_needs_groups_of_equal_size() -> None:
    message = "`channels` must be a multiple of 32, the number .* Received: channels=48"
    with pytest.raises(ValueError, match=message):
        GroupNorm()(normal(2, 5, 7, 48))


def test_group_norm_checks_epsilon() -> None:
    with pytest.raises(ValueError, match=r"`epsilon` must be a positive number. .* epsilon=0"):
        GroupNorm(epsilon=0)


def test_group_norm_refuses_a_single_image() -> None:
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        GroupNorm()(IMAGES[0])
