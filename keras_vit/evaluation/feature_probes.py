"""Evaluation of frozen features by nearest neighbors, logistic regression and retrieval.

Letters: N examples; D features; Q queries; k neighbors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_vit import arguments
from keras_vit.evaluation.few_shot import Part, arrays_of

NEIGHBORS = 20
# Inverse regularization strengths, selected by cross-validation on the training examples.
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_FOLDS = 3


def neighbor_accuracy(training: Part, test: Part, neighbors: int = NEIGHBORS) -> float:
    """Returns the accuracy of a nearest-neighbor classifier on features.

    Args:
        training: Features (N, D) and classes (N,).
        test: Features and classes of the test examples.
        neighbors: Number of neighbors, weighted by cosine similarity; at most N.

    Returns:
        The accuracy, in [0, 1].

    Examples:
        >>> features, labels = np.eye(3), [0, 1, 2]
        >>> neighbor_accuracy((features, labels), (features, labels), neighbors=1)
        1.0
    """
    x, y = arrays_of(training, "training")
    number = min(arguments.positive_int("neighbors", neighbors), len(y))
    classifier = KNeighborsClassifier(number, weights=_similarity, metric="cosine")
    return float(classifier.fit(x, y).score(*arrays_of(test, "test")))


def linear_accuracy(training: Part, test: Part, seed: int = 0) -> float | None:
    """Returns the accuracy of logistic regression on standardized features.

    Args:
        training: Features (N, D) and classes (N,). The regularization strength is selected by
            three-fold cross-validation on these examples.
        test: Features and classes of the test examples.
        seed: Seed of the folds.

    Returns:
        The accuracy, in [0, 1]; None if a class has fewer than three examples, too few for the
        cross-validation, or if there is only one class.

    Examples:
        >>> labels = np.arange(30) % 3
        >>> linear_accuracy((np.eye(3)[labels], labels), (np.eye(3), [0, 1, 2]))
        1.0
    """
    x, y = arrays_of(training, "training")
    counts = np.unique(y, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < _FOLDS:
        return None
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        {"logisticregression__C": _STRENGTHS},
        cv=StratifiedKFold(_FOLDS, shuffle=True, random_state=seed),
    )
    return float(search.fit(x, y).score(*arrays_of(test, "test")))


def nearest(
    features: ArrayLike, queries: ArrayLike, number: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the most similar images for each query.

    Args:
        features: Features of the searched images, (N, D).
        queries: Features of the query images, (Q, D).
        number: Number k of images for each query; at most N.

    Returns:
        Indices into `features`, (Q, k), most similar first, and cosine similarities, (Q, k).

    Raises:
        ValueError: If the shapes disagree.

    Examples:
        >>> indices, similarities = nearest([[1.0, 0.0], [0.0, 1.0]], [[0.1, 2.0]], number=1)
        >>> indices.tolist(), similarities.round(3).tolist()
        ([[1]], [[0.999]])
    """
    x, q = np.asarray(features, np.float64), np.asarray(queries, np.float64)
    if x.ndim != 2 or q.ndim != 2 or x.shape[1] != q.shape[1] or not len(x):
        raise ValueError(
            "`features` and `queries` must have the shapes (N, D) and (Q, D). Received: shapes "
            f"{x.shape} and {q.shape}"
        )
    number = min(arguments.positive_int("number", number), len(x))
    distances, indices = NearestNeighbors(n_neighbors=number, metric="cosine").fit(x).kneighbors(q)
    return indices, 1 - distances


def _similarity(distances: np.ndarray) -> np.ndarray:
    # Cosine distances are in [0, 2]; a sum of zero weights would cause a division by zero.
    return np.maximum(1 - distances, 1e-6)
