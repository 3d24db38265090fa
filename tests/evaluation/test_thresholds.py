from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import f1_score

from keras_vit.evaluation import choose_thresholds


def test_threshold_lies_half_way_to_the_next_lower_probability() -> None:
    shown = np.array([[0, 1], [1, 0], [1, 1], [0, 0], [0, 0]])
    scores = np.array([[0.1, 0.6], [0.4, 0.02], [0.9, 0.7], [0.3, 0.01], [0.2, 0.2]])
    assert choose_thresholds(shown, scores) == pytest.approx((0.35, 0.4))


def test_no_other_threshold_has_a_higher_f1() -> None:
    rng = np.random.default_rng(5)
    shown = rng.random((41, 3)) < (0.1, 0.4, 0.8)
    scores = np.round(0.3 * shown + 0.6 * rng.random((41, 3)) + 0.05, 2)  # some are equal
    for k, threshold in enumerate(choose_thresholds(shown, scores)):
        assert threshold not in scores[:, k]
        reached = f1_score(shown[:, k], scores[:, k] >= threshold)
        every = np.unique(scores[:, k])
        tried = [0, *((a + b) / 2 for a, b in itertools.pairwise(every))]
        best = max(f1_score(shown[:, k], scores[:, k] >= t) for t in tried)
        assert reached == pytest.approx(best)


def test_labels_that_tell_nothing_keep_one_half() -> None:
    shown = np.array([[0, 1], [0, 1], [0, 1]])
    assert choose_thresholds(shown, [[0.1, 0.2], [0.3, 0.1], [0.2, 0.9]]) == (0.5, 0.5)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_threshold_is_never_0_or_1(value: float) -> None:
    (threshold,) = choose_thresholds([[1], [0]], [[value], [value]])
    assert 0 < threshold < 1


def test_broken_probabilities_are_refused() -> None:
    with pytest.raises(ValueError, match="`probabilities` must be finite; 1 of 2 rows"):
        choose_thresholds([[1], [0]], [[np.nan], [0.2]])
