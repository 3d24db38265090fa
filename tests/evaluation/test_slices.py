from __future__ import annotations

import numpy as np
import pytest

from keras_vit.evaluation import slice_accuracies
from keras_vit.tasks.classification.metrics import evaluate_predictions


def test_slices_are_parts_of_the_images() -> None:
    labels, predicted = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    columns = {"camera": ["b", "a", "a", "b", "a"], "season": ["", "x", "", "x", "x"]}
    rows = slice_accuracies(labels, predicted, columns)
    assert [(r.column, r.value, r.images) for r in rows] == [
        ("camera", "a", 3),
        ("camera", "b", 2),
        ("season", "", 2),
        ("season", "x", 3),
    ]
    assert [r.accuracy for r in rows] == pytest.approx([1 / 3, 1, 1, 1 / 3])


def test_slice_has_the_interval_of_its_images() -> None:
    labels, predicted = np.zeros(10, int), np.r_[np.zeros(8, int), 1, 1]
    row = slice_accuracies(labels, predicted, {"a": ["x"] * 10 + []} | {"b": list("xxxxxxxxxx")})
    assert row == ()  # one value: nothing to compare
    first, _ = slice_accuracies(
        np.tile(labels, 2), np.tile(predicted, 2), {"a": ["x"] * 10 + ["y"] * 10}
    )
    whole = evaluate_predictions(labels, np.eye(2)[predicted], "ab")
    assert first.interval == pytest.approx(whole.interval)


def test_columns_of_names_are_no_slices() -> None:
    many = [str(k) for k in range(21)]
    assert slice_accuracies(np.zeros(21), np.zeros(21), {"name": many}) == ()
    assert len(slice_accuracies(np.zeros(20), np.zeros(20), {"name": many[:20]})) == 20
