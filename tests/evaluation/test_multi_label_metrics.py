from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from keras_vit.evaluation import LabelScores, evaluate_labels

# Four images, three labels; the last one is shown by none and said of none.
SHOWN = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES = np.array([[0.9, 0.2, 0.1], [0.3, 0.8, 0.2], [0.6, 0.7, 0.3], [0.1, 0.75, 0.4]])
NAMES, THRESHOLDS = ("daisy", "rose", "tulip"), (0.5, 0.7, 0.45)


def test_hand_worked_scores() -> None:
    report = evaluate_labels(SHOWN, PROBABILITIES, NAMES, THRESHOLDS)
    # daisy is said of images 0 and 2; in order 0.9 (right), 0.6, 0.3 (right).
    # rose is said of images 1, 2 and 3: 0.7 is a yes; in order 0.8 (right), 0.75, 0.7 (right).
    assert report.per_label == (
        LabelScores("daisy", 1 / 2, 1 / 2, 1 / 2, pytest.approx((1 + 2 / 3) / 2), 2, 0.5),
        LabelScores("rose", 2 / 3, 1.0, 4 / 5, pytest.approx((1 + 2 / 3) / 2), 2, 0.7),
    )
    assert report.num_examples == 4
    assert report.mean_average_precision == pytest.approx(5 / 6)
    assert report.micro_f1 == pytest.approx(2 * 3 / (5 + 4))
    assert report.macro_f1 == pytest.approx((1 / 2 + 4 / 5) / 2)
    assert report.subset_accuracy == 1 / 4  # the first image only


def test_scores_are_scikit_learn_s() -> None:
    rng = np.random.default_rng(3)
    shown = rng.random((37, 5)) < 0.4
    scores = np.clip(0.4 * shown + 0.6 * rng.random((37, 5)), 0, 1).astype("float32")
    thresholds = (0.2, 0.35, 0.5, 0.65, 0.8)
    report = evaluate_labels(shown, scores, "abcde", thresholds)
    said = scores >= np.array(thresholds, "float32")
    expected = metrics.precision_recall_fscore_support(shown, said)
    found = [(row.precision, row.recall, row.f1, row.support) for row in report.per_label]
    np.testing.assert_allclose(np.array(found).T, expected, rtol=1e-12)
    for kind in ("micro", "macro"):
        value = getattr(report, f"{kind}_f1")
        assert value == pytest.approx(metrics.f1_score(shown, said, average=kind))
    assert report.subset_accuracy == pytest.approx(metrics.accuracy_score(shown, said))
    average = metrics.average_precision_score(shown, scores, average="macro")
    assert report.mean_average_precision == pytest.approx(average)


def test_label_said_but_never_shown_is_listed() -> None:
    report = evaluate_labels(SHOWN, PROBABILITIES, NAMES, (0.5, 0.7, 0.35))
    assert report.per_label[2] == LabelScores("tulip", 0.0, 0.0, 0.0, None, 0, 0.35)
    assert report.mean_average_precision == pytest.approx(5 / 6)
    assert report.macro_f1 == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)


def test_one_label_is_judged_as_several_are() -> None:
    report = evaluate_labels(SHOWN[:, :1], PROBABILITIES[:, :1], ["daisy"], [0.5])
    assert report.per_label[0].precision == report.per_label[0].recall == 1 / 2
    assert report.subset_accuracy == 1 / 2


def test_nothing_shown_and_nothing_said_is_all_right() -> None:
    report = evaluate_labels(np.zeros((3, 2)), np.full((3, 2), 0.1), "ab", (0.5, 0.5))
    assert report.per_label == ()
    assert (report.mean_average_precision, report.subset_accuracy) == (None, 1.0)
    assert report.micro_f1 == report.macro_f1 == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0, 1, 2]}, r"`labels` must be 1 .*shape \(3,\) with the values \[0, 1, 2\]"),
        ({"labels": np.zeros((0, 3))}, r"and not empty. Received: labels of shape \(0, 3\)"),
        ({"labels": SHOWN * 2}, r"with the values \[0, 2\]"),
        ({"probabilities": PROBABILITIES[:3]}, r"labels, \(4, 3\). Received: .*shape \(3, 3\)"),
        ({"probabilities": PROBABILITIES * [[1], [np.nan], [1], [1]]}, r"1 of 4 .*ities\[1\]="),
        ({"label_names": ["a"]}, "`label_names` must have .* 3 columns .* Received: 1 entries"),
        ({"thresholds": (0.5,) * 4}, "`thresholds` must have one entry .* Received: 4 entries"),
    ],
)
def test_evaluate_labels_rejects(arguments: dict, message: str) -> None:
    given = {
        "labels": SHOWN,
        "probabilities": PROBABILITIES,
        "label_names": NAMES,
        "thresholds": THRESHOLDS,
    }
    with pytest.raises(ValueError, match=message):
        evaluate_labels(**(given | arguments))
