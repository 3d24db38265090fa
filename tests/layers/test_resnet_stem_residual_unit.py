from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import ResidualUnit
from tests.helpers import assert_close, check_layer, normal, numpy, randomise, weights_of

NARROW, WIDE = normal(2, 5, 7, 11), normal(2, 5, 7, 128)  # F 32, so 4F = 128
BRANCH = 9 * 32 * 32 + 32 * 128 + 2 * (32 + 32 + 128)  # conv2, conv3 and the norms


def unit(inputs: np.ndarray, **kwargs: Any) -> ResidualUnit:
    layer = ResidualUnit(32, **kwargs)
    layer.build(inputs.shape)
    return randomise(layer)


def projection(channels: int) -> int:
    return channels * 128 + 2 * 128


def group_norm(x: Any, weights: dict[str, np.ndarray], name: str, epsilon: float) -> np.ndarray:
    batch, height, width, channels = x.shape
    groups = numpy(x).astype("float64").reshape(batch, height * width, 32, -1)
    groups = groups - groups.mean((1, 3), keepdims=True)
    groups = groups / np.sqrt(groups.var((1, 3), keepdims=True) + epsilon)
    gamma, beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]
    return groups.reshape(batch, height, width, channels) * gamma + beta


@pytest.mark.slow
def test_residual_unit_contract_with_a_projection() -> None:
    parameters = 11 * 32 + BRANCH + projection(11)
    check_layer(
        ResidualUnit(32, strides=2, epsilon=1e-5),
        NARROW,
        output_shape=(2, 3, 4, 128),
        parameters=parameters,
    )


@pytest.mark.slow
def test_residual_unit_contract_without_a_projection() -> None:
    check_layer(ResidualUnit(32), WIDE, output_shape=(2, 5, 7, 128), parameters=128 * 32 + BRANCH)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
@pytest.mark.parametrize("strides", [1, 2])
def test_residual_unit_equals_the_equations(strides: int, epsilon: float) -> None:
    """The convolutions are the layer's own, which have a test to themselves."""
    layer = unit(WIDE, strides=strides, epsilon=epsilon)
    weights = weights_of(layer)
    y = WIDE
    for i in (1, 2, 3):
        conv = getattr(layer, f"conv{i}")
        y = group_norm(conv(y.astype("float32")), weights, f"gn{i}", epsilon)
        y = np.maximum(y, 0) if i < 3 else y
    shortcut = WIDE
    if strides == 2:
        shortcut = group_norm(layer.conv_proj(WIDE), weights, "gn_proj", epsilon)
    assert_close(layer(WIDE), np.maximum(shortcut + y, 0), 5e-6)  # measured: 8.8e-7


@pytest.mark.parametrize(
    ("inputs", "strides", "projects"),
    [(WIDE, 1, False), (WIDE, 2, True), (NARROW, 1, True)],
    ids=["same shape", "other size", "other channels"],
)
def test_residual_unit_projects_where_the_shape_changes(
    inputs: np.ndarray, strides: int, projects: bool
) -> None:
    weights = weights_of(unit(inputs, strides=strides))
    assert ("conv_proj/kernel" in weights) is ("gn_proj/gamma" in weights) is projects


def test_residual_unit_starts_as_its_shortcut() -> None:
    layer = ResidualUnit(32)
    assert_close(layer(WIDE), np.maximum(WIDE, 0), 0.0)
    weights = weights_of(layer)
    assert not weights.pop("gn3/gamma").any()
    assert all(np.all(weight == 1) for name, weight in weights.items() if "gamma" in name)


def test_residual_unit_of_unknown_size() -> None:
    layer = ResidualUnit(32, strides=2)
    assert layer(keras.Input((None, 7, 11))).shape == (None, None, 4, 128)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"filters": 48},
            "`filters` must be a multiple of 32, the number .* Received: filters=48",
        ),
        ({"filters": 0}, "`filters` must be a positive integer"),
        ({"strides": 0}, "`strides` must be a positive integer"),
        ({"epsilon": 0}, "`epsilon` must be a positive number. Received: epsilon=0"),
    ],
)
def test_residual_unit_checks_its_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResidualUnit(**{"filters": 32, **kwargs})


def test_residual_unit_refuses_a_single_image() -> None:
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        ResidualUnit(32)(WIDE[0])
