from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from keras_vit.evaluation import mcnemar, mean_interval
from keras_vit.evaluation.statistics import (
    better_than_guessing,
    clearly_better,
    exact_interval,
    wilson,
)


def test_mcnemar_of_a_case_worked_by_hand() -> None:
    true = np.zeros(20, int)
    first, second = np.zeros(20, int), np.zeros(20, int)
    second[:8] = 1  # wrong where the first one is right
    first[8:10] = 1  # wrong where the second one is right
    first[10:12] = second[10:12] = 1  # both wrong: says nothing
    found = mcnemar(true, first, second)
    assert (found.only_first, found.only_second) == (8, 2)
    # 2 (C(10,0) + C(10,1) + C(10,2)) / 2^10
    assert found.p_value == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert mcnemar(true, second, first).p_value == pytest.approx(found.p_value)


def test_mcnemar_of_the_same_answers_is_no_difference() -> None:
    assert mcnemar([0, 1], [0, 0], [0, 0]) == (0, 0, 1.0)


def test_mcnemar_says_what_it_found() -> None:
    true, wrong = np.zeros(30, int), np.ones(30, int)
    text = mcnemar(true, true, wrong).text("ViT", "ResNet")
    assert (
        text
        == "ViT alone is right on 30 images, ResNet alone on 0: p < 0.0001, unlikely to be chance."
    )
    assert "p = 1, may be chance" in mcnemar(true, true, true).text("a", "b")


def test_mcnemar_needs_the_same_images() -> None:
    with pytest.raises(ValueError, match=r"Received: shapes \(2,\), \(2,\) and \(3,\)"):
        mcnemar([0, 1], [0, 1], [0, 1, 1])


def test_mean_interval_is_about_that_of_student() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.5, 400)
    mean, low, high = mean_interval(values)
    half = stats.t.ppf(0.975, 399) * values.std(ddof=1) / 20
    assert mean == pytest.approx(values.mean())
    assert (mean - low, high - mean) == pytest.approx((half, half), rel=0.05)
    assert mean_interval(values) == (mean, low, high)  # the seed is fixed


def test_mean_interval_of_equal_numbers_is_a_point() -> None:
    assert mean_interval([3.0, 3.0]) == (3.0, 3.0, 3.0)
    with pytest.raises(ValueError, match=r"`values` must contain at least two numbers\."):
        mean_interval([1.0])


@pytest.mark.parametrize(
    ("right", "total", "expected"),
    # E. B. Wilson (1927): center (p + z^2 / 2n) / (1 + z^2 / n) with z = 1.959964
    [(8, 10, (0.4901625, 0.9433178)), (0, 5, (0.0, 0.4344825)), (5, 5, (0.5655175, 1.0))],
)
def test_wilson_interval(right: int, total: int, expected: tuple[float, float]) -> None:
    assert wilson(right, total) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("right", [0, 3, 10])
def test_exact_interval_is_that_of_scipy(right: int) -> None:
    expected = stats.binomtest(right, 10).proportion_ci(0.99, method="exact")
    found = exact_interval(np.arange(10) < right, 0.99)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_better_than_guessing_needs_more_than_luck() -> None:
    labels = np.arange(20) % 10
    right = np.zeros(20, bool)
    right[:5] = True  # P(5 or more of 20 at 1 in 10) = 0.043
    assert not better_than_guessing(right, labels, 10)
    right[:9] = True  # P = 7e-5
    assert better_than_guessing(right, labels, 10)
    # Nine of ten images are of one class: naming it always is no knowledge.
    labels = np.array([0] * 18 + [1] * 2)
    assert not better_than_guessing(labels == 0, labels, 10)
    assert not better_than_guessing(np.ones(7, bool), np.zeros(7, int), 2)


def test_clearly_better_counts_the_images_that_differ() -> None:
    old = np.arange(100) < 50
    new = np.arange(100) < 61  # 11 won, none lost: P = 2 ** -11
    assert clearly_better(new, old, 0.1)
    assert not clearly_better(new, old, 0.12)
    assert not clearly_better(old, new, 0.0)
    new = np.arange(100) < 59  # 2 ** -9 is not improbable enough
    assert not clearly_better(new, old, 0.05)
    assert not clearly_better(old, old, 0.0)
