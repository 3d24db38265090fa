from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics
from sklearn.metrics import f1_score

from keras_vit import files
from keras_vit.tasks.multi_label.metrics import (
    LabelScores,
    MultiLabelReport,
    choose_thresholds,
    evaluate_labels,
)


def test_label_scores_are_named_in_json() -> None:
    row = LabelScores("daisy", 0.25, 0.5, 1 / 3, None, support=7, threshold=0.4)
    assert list(row._asdict()) == [
        *("name", "precision", "recall", "f1", "average_precision", "support", "threshold")
    ]


REPORT = MultiLabelReport(
    num_examples=53,
    mean_average_precision=0.75,
    micro_f1=0.61234,
    macro_f1=0.5,
    subset_accuracy=0.25,
    per_label=(
        LabelScores("daisy", 0.5, 1.0, 2 / 3, 0.75, support=7, threshold=0.125),
        LabelScores("a name of " + "very " * 9 + "many", 0.0, 0.0, 0.0, None, 0, 0.5),
    ),
)


def test_text_has_a_line_for_each_label() -> None:
    lines = REPORT.text().splitlines()
    assert lines[0].split() == [
        *("precision", "recall", "f1-score", "avg", "prec", "support", "threshold")
    ]
    assert lines[2].split() == ["daisy", "0.5000", "1.0000", "0.6667", "0.7500", "7", "0.1250"]
    assert lines[3].split()[-6:] == ["0.0000", "0.0000", "0.0000", "-", "0", "0.5000"]
    assert "very ve...    0.0000" in lines[3]
    assert lines[-2:] == [
        "mean average precision 0.7500",
        "F1 0.6123 micro, 0.5000 macro; all labels correct for 0.2500 of 53 images",
    ]
    assert len({len(line) for line in (lines[0], lines[2], lines[3])}) == 1


def test_text_is_cut_after_fifty_labels() -> None:
    many = dataclasses.replace(REPORT, per_label=REPORT.per_label[:1] * 53)
    lines = many.text().splitlines()
    assert many.text().count("daisy") == 50
    assert lines[52] == "... and 3 more labels in evaluation.json"


def test_text_without_any_label_that_occurs() -> None:
    empty = dataclasses.replace(REPORT, mean_average_precision=None, per_label=())
    assert "mean average precision -" in empty.text()


def test_json_keeps_everything(tmp_path: Path) -> None:
    files.write_json(tmp_path / "evaluation.json", REPORT.to_json())
    read = json.loads((tmp_path / "evaluation.json").read_text())
    assert read == REPORT.to_json()
    assert (read["num_examples"], read["mean_average_precision"]) == (53, 0.75)
    assert (read["micro_f1"], read["macro_f1"], read["subset_accuracy"]) == (0.61234, 0.5, 0.25)
    assert read["per_label"][0]["threshold"] == 0.125
    assert read["per_label"][1]["average_precision"] is None


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
        (
            {"labels": [0, 1, 2]},
            r"`labels` must be a non-empty array of .*shape \(3,\) with the values \[0, 1, 2\]",
        ),
        ({"labels": np.zeros((0, 3))}, r"must be a non-empty array .* labels of shape \(0, 3\)"),
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
