from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.classification.metrics import evaluate_predictions

NAMES = ["daisy", "dandelion", "rose", "sunflower", "tulip", "violet", "zinnia"]


def one_hot(classes: list[int]) -> np.ndarray:
    return np.eye(len(NAMES), dtype="float32")[classes]


def test_evaluate_predictions_of_a_case_worked_by_hand() -> None:
    # true:      daisy 3, rose 2; tulip is only ever predicted, the other classes do not occur
    report = evaluate_predictions([0, 0, 0, 2, 2], one_hot([0, 0, 4, 2, 0]), NAMES)

    assert report.accuracy == pytest.approx(3 / 5)
    assert [row.name for row in report.per_class] == ["daisy", "rose", "tulip"]
    assert report.confusion.tolist() == [[2, 0, 1], [1, 1, 0], [0, 0, 0]]
    daisy, rose, tulip = report.per_class
    assert daisy[1:] == pytest.approx((2 / 3, 2 / 3, 2 / 3, 3))
    assert rose[1:] == pytest.approx((1.0, 1 / 2, 2 / 3, 2))
    assert tulip[1:] == (0, 0, 0, 0)


def test_evaluate_predictions_has_the_wilson_interval() -> None:
    # E. B. Wilson (1927): center (p + z^2 / 2n) / (1 + z^2 / n) with z = 1.959964
    report = evaluate_predictions([0] * 10, one_hot([0] * 8 + [1] * 2), NAMES)
    assert report.interval == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_evaluate_predictions_counts_the_true_class_among_the_best_five() -> None:
    scores = np.tile(np.arange(7, dtype="float32"), (4, 1))  # best: 6, 5, 4, 3, 2
    report = evaluate_predictions([6, 2, 1, 0], scores, NAMES)
    assert report.accuracy == 0.25
    assert report.top5 == 0.5


@pytest.mark.parametrize(("true", "expected"), [(0, 1), (4, 1), (5, 0), (6, 1)])
def test_evaluate_predictions_ranks_ties_by_index_in_top5(true: int, expected: int) -> None:
    scores = np.zeros((3, 7))
    scores[:, 6] = true == 6  # otherwise seven equal scores
    report = evaluate_predictions([true] * 3, scores, NAMES)
    assert report.top5 == expected >= report.accuracy


def test_evaluate_predictions_has_no_top5_for_five_classes() -> None:
    assert evaluate_predictions([0, 1], np.eye(5)[[0, 1]], NAMES[:5]).top5 is None
    assert evaluate_predictions([0, 1], np.eye(6)[[0, 1]], NAMES[:6]).top5 == 1


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([], np.zeros((0, 7)), "`labels` must be a non-empty list of integer class indices"),
        ([0.0], np.zeros((1, 7)), r"shape \(1,\) and dtype float64"),
        ([0, 1], np.zeros((3, 7)), r"shape \(2, 7\). Received: probabilities of shape \(3, 7\)"),
        (
            [0, 7],
            np.zeros((2, 7)),
            r"`labels` must be indices of `class_names`, in \[0, 7\).* from 0 to 7",
        ),
        ([-1, 3], np.zeros((2, 7)), "Received: labels from -1 to 3"),
        (
            [0, 1],
            one_hot([0, 1]) * np.nan,
            "2 of 2 rows are not, which usually means that training",
        ),
    ],
)
def test_evaluate_predictions_rejects(
    labels: list[int], probabilities: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_predictions(labels, probabilities, NAMES)
