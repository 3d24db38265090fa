from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from keras_vit.evaluation import linear_accuracy, nearest, neighbor_accuracy
from tests.evaluation.test_few_shot import blobs


def test_neighbors_vote_by_their_similarity() -> None:
    # Two of class 0 at a right angle, one of class 1 nearby: it outvotes both.
    x, y = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.1]]), [0, 0, 1]
    assert neighbor_accuracy((x, y), ([[1.0, 0.0]], [1])) == 1.0
    plain = KNeighborsClassifier(3, metric="cosine").fit(x, y)
    assert plain.predict([[1.0, 0.0]]).tolist() == [0]


def test_neighbors_may_be_fewer_than_asked_for() -> None:
    assert neighbor_accuracy((np.eye(3), [0, 1, 2]), (np.eye(3), [0, 1, 2]), 20) == 1.0


def test_linear_classifier_learns_what_is_linear() -> None:
    assert linear_accuracy(blobs(90, 0.2), blobs(60, 0.2)) == 1.0


@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1], [0] * 5])
def test_linear_classifier_of_too_few_examples(labels: list[int]) -> None:
    assert linear_accuracy((np.eye(5), labels), (np.eye(5), labels)) is None


def test_nearest_are_found_by_angle() -> None:
    x = np.array([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0], [1.0, 1.0]])
    indices, similarities = nearest(x, [[5.0, 1.0]], number=3)
    assert indices.tolist() == [[0, 3, 1]]
    expected = [5 / 26**0.5, 6 / (26**0.5 * 2**0.5), 1 / 26**0.5]
    np.testing.assert_allclose(similarities[0], expected)
    assert nearest(x, [[5.0, 1.0]], number=99)[0].shape == (1, 4)


def test_probes_of_what_does_not_fit() -> None:
    good = (np.eye(3), [0, 1, 2])
    for function in (neighbor_accuracy, linear_accuracy):
        with pytest.raises(ValueError, match=r"`training` must contain features of shape \(N, D\)"):
            function((np.eye(3), [0, 1]), good)
    with pytest.raises(ValueError, match=r"Received: shapes \(3, 3\) and \(1, 2\)"):
        nearest(np.eye(3), [[1.0, 2.0]])
