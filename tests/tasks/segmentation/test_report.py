from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, jaccard_score

from keras_vit.data.masks import IGNORED
from keras_vit.tasks.segmentation.report import SegmentationReport

NAMES = ("sky", "road", "car")


def pairs(number: int = 6) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(number):
        true = rng.integers(0, 3, (7, 9)).astype(np.uint8)
        predicted = np.where(rng.random((7, 9)) < 0.7, true, rng.integers(0, 3, (7, 9)))
        true[0, :3] = IGNORED
        found.append((true, predicted.astype(np.uint8)))
    return found


def test_scores_are_those_of_scikit_learn() -> None:
    drawn = pairs()
    report = SegmentationReport.of(NAMES, drawn)
    true = np.concatenate([t[t != IGNORED] for t, _ in drawn])
    found = np.concatenate([f[t != IGNORED] for t, f in drawn])
    np.testing.assert_array_equal(report.confusion, confusion_matrix(true, found))
    ious = jaccard_score(true, found, average=None)
    np.testing.assert_allclose([row.iou for row in report.per_class], ious)
    assert report.mean_iou == pytest.approx(ious.mean())
    assert report.pixel_accuracy == pytest.approx((true == found).mean())
    low, high = report.interval
    assert low < report.mean_iou < high
    assert report.to_json()["num_examples"] == 6
    assert report.text().startswith("6 images, mean IoU 0.")


def test_unseen_pixels_are_wrong_and_absent_classes_do_not_count() -> None:
    true = np.array([[0, 0, 0, 1]], np.uint8)
    found = np.array([[0, 0, IGNORED, 1]], np.uint8)
    report = SegmentationReport.of(NAMES, [(true, found)])
    assert [row.iou for row in report.per_class[:2]] == [2 / 3, 1]
    assert np.isnan(report.per_class[2].iou)
    assert report.mean_iou == pytest.approx(5 / 6)
    assert report.pixel_accuracy == 0.75
    assert report.to_json()["per_class"][2]["iou"] is None


def test_boundary_f1_allows_a_distance() -> None:
    true = np.zeros((200, 200), np.uint8)
    true[50:150, 50:150] = 1
    scores = []
    for shift in (0, 2, 12):
        report = SegmentationReport.of(("a", "b"), [(true, np.roll(true, shift, 1))])
        scores.append(report.boundary_f1)
    assert scores[0] == scores[1] == 1
    assert 0.4 < scores[2] < 0.8  # the horizontal edges are right


@pytest.mark.parametrize(
    ("outer", "expected"),
    [(102, [1, 0, 0, 0]), (140, [np.nan, 0, np.nan, np.nan])],  # 140: it may be anywhere
)
def test_ignored_pixels_between_classes_contain_the_boundary(
    outer: int, expected: list[float]
) -> None:
    rows, columns = np.mgrid[:375, :500]
    radius = np.hypot(rows - 187, columns - 250)
    true = (radius < 97).astype(np.uint8)
    true[(radius >= 97) & (radius < outer)] = IGNORED
    scores = []
    for size in ((97 + outer) / 2, outer + 11, 1000, 0):  # right, too large, everywhere, nowhere
        found = (radius < size).astype(np.uint8)
        scores.append(SegmentationReport.of(("a", "b"), [(true, found)]).boundary_f1)
    np.testing.assert_array_equal(scores, expected)


def test_images_of_one_class_have_no_boundary() -> None:
    single, halves = np.zeros((7, 9), np.uint8), np.arange(63, dtype=np.uint8).reshape(7, 9) // 32
    report = SegmentationReport.of(("a", "b"), [(single, single), (halves, halves)])
    assert report.boundary_f1 == 1
    assert SegmentationReport.of(("a", "b"), [(single, halves)]).boundary_f1 == 0
    report = SegmentationReport.of(("a", "b"), [(single, single)])
    assert np.isnan(report.boundary_f1)
    assert report.to_json()["boundary_f1"] is None
