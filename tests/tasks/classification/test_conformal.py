from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.conformal import (
    conformal_threshold,
    prediction_set,
    set_outputs,
)
from keras_vit.tasks.classification.prediction import prediction, served_predictions
from keras_vit.tasks.classification.task import Classification
from tests.helpers import numpy


def sets(threshold: float) -> Preprocessing:
    return Preprocessing(class_names=tuple("abc"), set_threshold=threshold, coverage=0.9)


def sample(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 7, number)
    logits = 2 * np.eye(7)[labels] + generator.normal(0, 1, (number, 7))
    return labels, special.softmax(3 * logits, axis=1).astype("float32")


@pytest.mark.parametrize("coverage", [0.9, 0.99])
def test_new_images_are_covered_as_often_as_asked(coverage: float) -> None:
    labels, probabilities = sample(500, seed=0)
    preprocessing = sets(conformal_threshold(labels, probabilities, coverage))
    labels, probabilities = sample(20_000, seed=1)
    inside = prediction_set(probabilities, preprocessing)
    covered = int(inside[np.arange(len(labels)), labels].sum())
    # The coverage of 500 calibration images has a beta distribution.
    last = np.ceil(501 * coverage)
    low, high = stats.beta(last, 501 - last).interval(0.999)
    assert low - 0.01 < covered / len(labels) < high + 0.01
    assert inside.any(axis=1).all()


def test_threshold_worked_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    # Probabilities of the true class: 0.9, 0.7, 0.6, 0.5; of five places four are 0.8.
    assert conformal_threshold([0, 1, 0, 0], probabilities, 0.6) == pytest.approx(0.55)
    assert conformal_threshold([0, 1, 0, 0], probabilities, 0.8) == pytest.approx(0.25)


@pytest.mark.parametrize("coverage", [0.0, 0.81, 1.0])
def test_coverage_that_the_images_cannot_give_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match=r"`coverage` must be in \(0, 1\), and at most .*4 images"):
        conformal_threshold([0, 1, 0, 0], np.full((4, 2), 0.5), coverage)


def test_sets_are_never_empty_and_best_first() -> None:
    output = np.array([0.2, 0.35, 0.45], "float32")
    assert prediction(output, sets(0.3)).set == ("c", "b")
    assert prediction(output, sets(0.6)).set == ("c",)
    assert prediction(output, sets(0.3)).text() == "c 0.4500   b 0.3500   a 0.2000   set: c, b"
    assert prediction(output, Preprocessing(class_names=tuple("abc"))).set is None
    assert prediction(output, sets(0.3), "cannot be read").set is None


def test_graph_and_arrays_have_the_same_sets() -> None:
    _, probabilities = sample(50, seed=2)
    preprocessing = Preprocessing(set_threshold=0.2, coverage=0.9)
    found = set_outputs(probabilities, preprocessing)
    expected = prediction_set(probabilities, preprocessing)
    np.testing.assert_array_equal(numpy(found["set"]), expected)
    np.testing.assert_array_equal(numpy(found["set_size"]), expected.sum(axis=1))
    assert set_outputs(probabilities, Preprocessing()) == {}


def test_sets_of_a_server_have_names() -> None:
    answer = {
        "probabilities": np.array([[0.2, 0.35, 0.45], [0, 0, 0]], "float32"),
        "top_labels": np.array([["c", "b"], ["", ""]]),
        "top_scores": np.array([[0.45, 0.35], [0, 0]]),
        "top_indices": np.array([[2, 1], [0, 0]]),
        "set": np.array([[True, True, True], [False] * 3]),
        "set_size": np.array([3, 0]),
        "ok": np.array([True, False]),
        "message": np.array(["", "damaged"]),
    }
    assert [one.set for one in served_predictions(answer)] == [("c", "b", "class 0"), None]


def test_table_has_the_set_and_its_size() -> None:
    table = Classification(None).table(sets(0.3))
    found = prediction(np.array([0.2, 0.35, 0.45], "float32"), sets(0.3))
    row = table.rows("a.jpg", found)[0]
    assert (row["set"], row["set_size"]) == ("c|b", 2)
    assert set(row) <= {*table.columns}
    assert "set" not in Classification(None).table(Preprocessing(class_names=("a",))).columns
