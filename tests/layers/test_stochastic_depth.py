from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import StochasticDepth
from tests.helpers import check_layer, normal, numpy

BRANCH = normal(3, 5, 7)


def test_stochastic_depth_contract() -> None:
    check_layer(StochasticDepth(0.3, seed=7), BRANCH, output_shape=(3, 5, 7), parameters=0)


def test_stochastic_depth_drops_whole_examples_and_scales_the_rest() -> None:
    branch = normal(2000, 2, 3)
    outputs = numpy(StochasticDepth(0.2)(branch, training=True))
    dropped = (outputs == 0).all(axis=(1, 2))
    np.testing.assert_allclose(outputs[~dropped], branch[~dropped] / 0.8, rtol=1e-6)
    assert abs(dropped.mean() - 0.2) < 0.045  # its standard deviation is 0.009


def test_stochastic_depth_keeps_the_mean() -> None:
    outputs = numpy(StochasticDepth(0.4)(np.ones((20_000, 1), "float32"), training=True))
    assert abs(outputs.mean() - 1) < 0.03  # its standard deviation is 0.006


@pytest.mark.parametrize(("rate", "training"), [(0.9, False), (0.9, None), (0.0, True)])
def test_stochastic_depth_changes_nothing(rate: float, training: bool | None) -> None:
    np.testing.assert_array_equal(numpy(StochasticDepth(rate)(BRANCH, training=training)), BRANCH)


def test_stochastic_depth_draws_anew_for_every_call() -> None:
    layer, branch = StochasticDepth(0.5, seed=3), np.ones((64, 1), "float32")
    first, second = (numpy(layer(branch, training=True)) for _ in range(2))
    assert np.any(first != second)
    again = numpy(StochasticDepth(0.5, seed=3)(branch, training=True))
    np.testing.assert_array_equal(again, first)


def test_stochastic_depth_checks_its_rate() -> None:
    with pytest.raises(ValueError, match=r"`rate` must be a number in \[0, 1\)\. Received: rate=1"):
        StochasticDepth(1)
