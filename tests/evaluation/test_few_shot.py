from __future__ import annotations

import numpy as np
import pytest

from keras_vit.evaluation import few_shot, fit_least_squares
from keras_vit.evaluation.few_shot import FewShot


def blobs(number: int, spread: float, features: int = 13) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    labels = rng.integers(0, 3, number)
    centers = np.random.default_rng(0).normal(size=(3, features))
    return centers[labels] + rng.normal(0, spread, (number, features)), labels


@pytest.mark.parametrize("number", [5, 17, 90])  # fewer examples than features, and more
@pytest.mark.parametrize("l2", [1e-2, 1.0, 1024.0])
def test_closed_form_is_that_of_lstsq_on_the_augmented_system(number: int, l2: float) -> None:
    x, y = blobs(number, 1.0)
    found = fit_least_squares(x, y, 3, l2)
    standard = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-5)
    design = np.column_stack([standard, np.full(number, 100.0)])
    system = np.vstack([design, np.sqrt(l2) * np.eye(14)])
    targets = np.vstack([np.where(np.arange(3) == y[:, None], 1.0, -1.0), np.zeros((14, 3))])
    expected = np.linalg.lstsq(system, targets, rcond=None)[0]
    # Measured: 3e-12.
    np.testing.assert_allclose(found.weights, expected, atol=1e-6, rtol=0)


def test_bias_is_nearly_free_of_the_regularisation() -> None:
    """With features that say nothing, the answer is the most frequent class."""
    x = np.zeros((30, 4))
    y = np.r_[np.zeros(9, int), np.ones(21, int)]
    found = fit_least_squares(x, y, 2)
    scores = np.r_[np.zeros(4), 100.0] @ found.weights
    np.testing.assert_allclose(scores, [9 / 15 - 1, 21 / 15 - 1], rtol=0.01)


def test_more_shots_are_better_on_average() -> None:
    found = few_shot(blobs(300, 1.5), blobs(200, 1.5), seeds=5)
    assert [row.shots for row in found] == [1, 5, 10, 25]
    means = [row.mean for row in found]
    assert means == sorted(means)
    assert means[0] < means[-1]
    assert all(len(row.accuracies) == 5 for row in found)
    assert few_shot(blobs(300, 1.5), blobs(200, 1.5), seeds=5) == found


def test_a_class_with_fewer_examples_brings_what_it_has() -> None:
    x, y = blobs(60, 0.1)
    few = np.flatnonzero(y != 2).tolist() + np.flatnonzero(y == 2)[:3].tolist()
    found = few_shot((x[few], y[few]), (x, y), shots=(10,), seeds=1, l2=1.0)
    assert found[0].mean > 0.9


def test_spread_is_that_of_a_sample() -> None:
    assert FewShot(1, (0.2, 0.4, 0.9)).spread == pytest.approx(np.std([0.2, 0.4, 0.9], ddof=1))
    assert FewShot(1, (0.2,)).spread == 0.0


@pytest.mark.parametrize(("x", "y"), [(np.ones((3, 2)), [0, 1]), (np.ones(3), [0, 1, 1])])
def test_least_squares_of_what_does_not_fit(x: np.ndarray, y: list[int]) -> None:
    message = (
        r"`features` must contain features of shape \(N, D\) and one class per row\. .*: shapes"
    )
    with pytest.raises(ValueError, match=message):
        fit_least_squares(x, y, 2)


def test_least_squares_without_a_strength() -> None:
    with pytest.raises(ValueError, match=r"`l2` must be a positive number\. Received: l2=0\.0"):
        fit_least_squares(np.ones((2, 2)), [0, 1], 2, l2=0.0)


def test_few_shot_of_what_does_not_fit() -> None:
    good = (np.ones((3, 2)), [0, 1, 1])
    for bad in ((np.ones((2, 2)), [0]), (np.zeros((0, 2)), [])):
        with pytest.raises(ValueError, match=r"`test` must contain features of shape \(N, D\)"):
            few_shot(good, bad)
        with pytest.raises(ValueError, match=r"`training` must contain features of shape"):
            few_shot(bad, good)
