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
    assert found.first_drop_rate is not None
    assert (found.first_drop_rate, found.lowest_loss_rate) == (1e-2, 1)
    assert found.divergence_rate == 100  # half way back from 0.2 is 0.6
    assert found.summed_rate_to_drop == pytest.approx(1e-4 + 1e-3 + 1e-2)


def test_curve_that_never_falls() -> None:
    found = curve(1, 1, 0.99, 1, 1.2, 1.6, 4)
    assert found.first_drop_rate is None
    assert found.first_drop_rate is found.lowest_loss_rate is found.summed_rate_to_drop is None
    assert found.divergence_rate == 10


def test_curve_that_never_rises() -> None:
    assert curve(1, 0.9, 0.8, 0.5).divergence_rate is None


def test_curve_that_ends_in_infinity() -> None:
    found = curve(1, 0.9, 0.5, np.inf)
    assert (found.lowest_loss_rate, found.divergence_rate) == (1e-2, 1e-1)


def test_single_batches_do_not_count_in_a_long_curve() -> None:
    losses = np.ones(40)
    losses[7] = 0.2  # one easy batch
    losses[20:] = 0.5
    losses[30] = np.inf
    found = Curve(np.arange(1.0, 41), losses)
    assert (found.first_drop_rate, found.divergence_rate) == (21, None)
