from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.doctor.lr_range_test import range_test
from tests.helpers import normal

pytestmark = pytest.mark.tensorflow

L = keras.layers


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Three classes that a linear model tells apart."""
    x = normal(24, 5)
    return x, np.eye(3, dtype="float32")[x[:, :3].argmax(axis=1)]


def model(ending: str | None = None, *front: L.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((5,)), *front, L.Dense(3, ending)])


def test_range_test_grows_the_rate_and_measures_by_the_start() -> None:
    x, y = problem()
    curve = range_test(
        model(), x, y, optimizer=keras.optimizers.SGD(), low=1e-4, high=10.0, steps=26
    )
    np.testing.assert_allclose(curve.rates, np.geomspace(1e-4, 10, 26))
    assert curve.losses[0] == pytest.approx(1, abs=1e-3)  # a step of 1e-4 changes nothing
    assert curve.first_drop_rate is not None
    assert curve.first_drop_rate is not None
    assert 1e-3 < curve.first_drop_rate < 3


def test_range_test_steps_by_the_rates_it_reports() -> None:
    x, y = problem()
    network = model()
    kernel, bias = (w.copy() for w in network.get_weights())
    curve = range_test(
        network, x[:1], y[:1], optimizer=keras.optimizers.SGD(), low=0.5, high=2.0, steps=3
    )
    z = x[:1] @ kernel + bias
    losses = []
    for rate in (0, 0.5, 1.0, 2.0):
        p = np.exp(z) / np.exp(z).sum() if rate else None
        if p is not None:
            gradient = p - y[:1]
            z = z - rate * gradient * (1 + (x[:1] ** 2).sum())
        losses.append(float(np.log(np.exp(z).sum()) - (z * y[:1]).sum()))
    np.testing.assert_allclose(curve.losses, np.array(losses[1:]) / losses[0], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [None, "softmax", "sigmoid"])
def test_range_test_puts_everything_back(ending: str | None) -> None:
    x, y = problem()
    network = model(ending, L.BatchNormalization(), L.Dropout(0.5))
    before = [np.array(v) for v in network.variables]
    curve = range_test(
        network, x, y, optimizer=keras.optimizers.Adam(), ending=ending or "linear", steps=7
    )
    assert len(curve.losses) == 7
    for variable, value in zip(network.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg=variable.path)
    assert len(before) == 4 + 2 + 1  # norm, Dense, and the seed of the dropout


def test_range_test_learns_through_probabilities_as_through_logits() -> None:
    x, y = problem()
    logits, softmax = model(), model("softmax")
    softmax.set_weights(logits.get_weights())
    curves = [
        range_test(network, x, y, optimizer=keras.optimizers.SGD(), ending=ending, steps=9)
        for network, ending in ((logits, "linear"), (softmax, "softmax"))
    ]
    np.testing.assert_allclose(curves[0].losses, curves[1].losses, rtol=1e-4)


def test_range_test_of_one_output() -> None:
    x, y = problem()
    network = keras.Sequential([keras.Input((5,)), L.Dense(1, "sigmoid")])
    two = np.stack([y[:, 0], 1 - y[:, 0]], axis=1)
    curve = range_test(
        network, x, two, optimizer=keras.optimizers.Adam(), ending="sigmoid", steps=30
    )
    assert curve.first_drop_rate is not None


def test_range_test_ends_where_the_loss_is_lost() -> None:
    x, y = problem()
    curve = range_test(
        model(), 1e3 * x, y, optimizer=keras.optimizers.SGD(), low=1e-7, high=1e9, steps=40
    )
    assert len(curve.rates) < 40
    assert curve.losses[-1] > 5
    assert len(curve.rates) == len(curve.losses)


def test_range_test_of_a_loss_that_is_lost_at_once() -> None:
    x, y = problem()
    network = model()
    network.set_weights([np.full((5, 3), np.nan), np.zeros(3)])
    curve = range_test(network, x, y, optimizer=keras.optimizers.SGD(), low=0.5, high=2.0, steps=3)
    np.testing.assert_array_equal(curve.rates, [0.5])
    np.testing.assert_array_equal(curve.losses, [np.inf])


def test_range_test_clips_as_the_run_does() -> None:
    x, y = problem()
    first = model()
    second = keras.models.clone_model(first)
    second.set_weights(first.get_weights())
    free, clipped = (
        range_test(
            network,
            1e2 * x,
            y,
            optimizer=keras.optimizers.SGD(),
            low=1e-2,
            high=1e-1,
            steps=8,
            clip_norm=clip,
        )
        for network, clip in ((first, 0.0), (second, 1e-3))
    )
    assert np.abs(clipped.losses - 1).max() < 0.05 < np.abs(free.losses - 1).max()
