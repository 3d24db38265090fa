from __future__ import annotations

import numpy as np
import pytest

from keras_vit.doctor.lr_range_test import Curve

pytestmark = pytest.mark.tensorflow

RATES = 10.0 ** np.arange(-4, 3)


def curve(*losses: float) -> Curve:
    return Curve(RATES[: len(losses)], np.array(losses))


def test_curve_tells_where_the_loss_falls_and_rises() -> None:
    found = curve(1, 0.99, 0.9, 0.5, 0.2, 0.5, 0.7)
    assert found.falls_from is not None
    assert (found.falls_from, found.lowest_at) == (1e-2, 1)
    assert found.rises_from == 100  # half way back from 0.2 is 0.6
    assert found.traveled == pytest.approx(1e-4 + 1e-3 + 1e-2)


def test_curve_that_never_falls() -> None:
    found = curve(1, 1, 0.99, 1, 1.2, 1.6, 4)
    assert found.falls_from is None
    assert found.falls_from is found.lowest_at is found.traveled is None
    assert found.rises_from == 10


def test_curve_that_never_rises() -> None:
    assert curve(1, 0.9, 0.8, 0.5).rises_from is None


def test_curve_that_ends_in_infinity() -> None:
    found = curve(1, 0.9, 0.5, np.inf)
    assert (found.lowest_at, found.rises_from) == (1e-2, 1e-1)


def test_single_batches_do_not_count_in_a_long_curve() -> None:
    losses = np.ones(40)
    losses[7] = 0.2  # one easy batch
    losses[20:] = 0.5
    losses[30] = np.inf
    found = Curve(np.arange(1.0, 41), losses)
    assert (found.falls_from, found.rises_from) == (21, None)
