from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.detection.report import DetectionReport, errors_of

pytest.importorskip("pycocotools", reason="needs the extra coco")
Pairs = list[tuple[np.ndarray, np.ndarray]]


def drawn(seed: int = 5) -> Pairs:
    """Objects of three classes, and found ones near them, beside false ones."""
    generator, pairs = np.random.default_rng(seed), []
    for _ in range(12):
        begin = generator.uniform(0, 150, (6, 2))
        boxes = np.concatenate([begin, begin + generator.uniform(40, 120, (6, 2))], axis=1)
        labels = generator.integers(0, 3, (6, 1))
        true = np.concatenate([boxes, labels, np.zeros((6, 1))], axis=1)
        near = boxes + generator.normal(scale=6, size=boxes.shape)
        found = np.concatenate([near, generator.uniform(size=(6, 1)), labels], axis=1)
        found[generator.integers(6), 5] = generator.integers(0, 3)
        pairs.append((true.astype("f"), found.astype("f")))
    return pairs


def iou(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2])
    both = sides.clip(min=0).prod()
    return both / ((a[2:4] - a[:2]).prod() + (b[2:4] - b[:2]).prod() - both)


def average_precision(pairs: Pairs, label: int, threshold: float) -> float:
    """COCO's definition, in plain Python: precision at 101 recalls, without crowds."""
    rows = [(row[4], i, row) for i, (_, found) in enumerate(pairs) for row in found]
    rows = sorted((r for r in rows if r[2][5] == label), key=lambda r: -r[0])
    left = {i: [row for row in true if row[4] == label] for i, (true, _) in enumerate(pairs)}
    total, right, points = sum(map(len, left.values())), 0, []
    for number, (_, image, row) in enumerate(rows, 1):
        best = max(left[image], key=lambda other: iou(row, other), default=None)
        if best is not None and iou(row, best) >= threshold:
            left[image] = [other for other in left[image] if other is not best]
            right += 1
        points.append((right / total, right / number))
    return float(
        np.mean(
            [max((p for r, p in points if r >= at), default=0) for at in np.linspace(0, 1, 101)]
        )
    )


def test_average_precision_is_that_of_coco() -> None:
    pairs = drawn()
    report = DetectionReport.of(["a", "b", "c"], pairs)
    for index, threshold in ((0, 0.5), (5, 0.75)):
        expected = [average_precision(pairs, label, threshold) for label in range(3)]
        assert 0.05 < min(expected) < 0.99
        # Measured: 0.
        np.testing.assert_allclose(report.average(index), expected, atol=1e-6)
    assert report.ap50 == pytest.approx(np.mean(report.average(0)))
    assert report.ap75 < report.ap50
    assert report.ap < report.ap50
    assert [row.objects for row in report.per_class] == report.counts.tolist()
    assert report.counts.sum() == 72


def test_misses_and_false_alarms_are_counted() -> None:
    true = np.array([[0, 0, 10, 10, 0, 0], [20, 20, 40, 40, 1, 0], [0, 50, 9, 60, 0, 1]], "f")
    found = np.array(
        [
            [0, 0, 10, 11, 0.9, 0],
            [1, 0, 10, 10, 0.8, 0],  # again
            [20, 20, 40, 40, 0.7, 0],  # another class
            [20, 20, 40, 40, 0.1, 1],  # hardly
        ],
        "f",
    )
    report = DetectionReport.of(["a", "b", "c"], [(true, found), (true[:0], found[:0])])
    assert report.errors.tolist() == [[1, 2], [0, 0]]
    assert "1 of 2 objects missed, 2 false alarms" in report.text()
    assert [row["ap50"] for row in report.to_json()["per_class"]][2] is None
    assert report.counts.tolist() == [1, 1, 0]


def test_boxes_in_crowds_are_no_false_alarms() -> None:
    true = np.array([[0, 0, 50, 50, 0, 1], [0, 0, 10, 10, 0, 0]], "f")
    found = np.array(
        [
            [0, 0, 10, 11, 0.9, 0],  # the object, which is also in the crowd
            [20, 20, 30, 30, 0.8, 0],
            [30, 20, 40, 30, 0.7, 0],
            [20, 20, 30, 30, 0.6, 1],  # another class
            [45, 45, 60, 60, 0.5, 0],  # hardly in it
        ],
        "f",
    )
    assert errors_of(true, found) == (0, 2)
    assert errors_of(true[:1], found) == (0, 2)
    assert errors_of(true[:1], found[:0]) == (0, 0)
    report = DetectionReport.of(["a", "b"], [(true, found[:3])])
    assert report.ap50 == pytest.approx(1)  # as COCO scores them


def test_images_without_objects_have_no_precision() -> None:
    report = DetectionReport.of(["a"], [(np.zeros((0, 6)), np.zeros((0, 6)))])
    assert np.isnan(report.ap)
    assert report.to_json()["per_class"][0]["ap"] is None
