"""From predicted probabilities to a report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn import metrics

from keras_vit.evaluation.class_scores import ClassScores
from keras_vit.evaluation.report import DENSE_CLASSES, Report
from keras_vit.evaluation.statistics import wilson

_BLOCK = 1024  # rows that are sorted at a time


def evaluate_predictions(
    labels: ArrayLike, probabilities: ArrayLike, class_names: Sequence[str]
) -> Report:
    """Scores predicted probabilities (or logits) against the true classes.

    A class without predictions has precision 0, one without examples has recall 0. Classes
    that neither occur nor are predicted are left out of the table and the confusion matrix.

    Args:
        labels: True class indices of shape (N,), integers in [0, number of classes).
        probabilities: Scores of shape (N, classes); the largest one of a row is the prediction.
        class_names: The names of the classes.

    Returns:
        A `Report`.

    Raises:
        ValueError: If the shapes disagree, a label is out of range, a score is not finite or
            there is nothing to evaluate.

    Example:
        >>> report = evaluate_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], "ab")
        >>> round(report.accuracy, 3), report.confusion.tolist()
        (0.667, [[1, 0], [1, 1]])
    """
    true, scores = np.asarray(labels), np.asarray(probabilities)
    _check(true, scores, class_names)
    predicted = scores.argmax(axis=1)
    present = np.union1d(true, predicted)  # (R,), the classes that scikit-learn reports
    correct = int((predicted == true).sum())
    top5 = None
    if len(class_names) > 5:
        every = np.arange(len(class_names))
        found = (
            metrics.top_k_accuracy_score(
                true[i : i + _BLOCK], scores[i : i + _BLOCK], k=5, labels=every, normalize=False
            )
            for i in range(0, len(true), _BLOCK)
        )
        top5 = float(sum(found) / len(true))
    places = (np.searchsorted(present, true), np.searchsorted(present, predicted))
    shape = (len(present), len(present))
    confusion = sparse.coo_array((np.ones(len(true), int), places), shape).tocsr()
    columns = metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    return Report(
        accuracy=correct / len(true),
        interval=wilson(correct, len(true)),
        top5=top5,
        per_class=tuple(
            ClassScores(class_names[index], float(p), float(r), float(f1), int(support))
            for index, p, r, f1, support in zip(present, *columns, strict=True)
        ),
        confusion=confusion if len(present) > DENSE_CLASSES else confusion.toarray(),
    )


def _check(labels: np.ndarray, scores: np.ndarray, class_names: Sequence[str]) -> None:
    if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            "`labels` must be a non-empty list of integer class indices. "
            f"Received: labels of shape {labels.shape} and dtype {labels.dtype}"
        )
    expected = (len(labels), len(class_names))
    if scores.shape != expected:
        raise ValueError(
            "`probabilities` must have one row per label and one column per class name, "
            f"shape {expected}. Received: probabilities of shape {scores.shape}"
        )
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise ValueError(
            f"`labels` must lie in [0, {len(class_names)}), the range of `class_names`. "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )
    ends = scores.min(axis=1), scores.max(axis=1)  # no array of (N, classes)
    broken = np.flatnonzero(~np.isfinite(ends).all(axis=0))
    if len(broken):
        raise ValueError(
            f"`probabilities` must be finite; {len(broken)} of {len(scores)} rows are not, the "
            "usual sign of a training that diverged: try a smaller learning rate. "
            f"Received: probabilities[{broken[0]}]={scores[broken[0]]}"
        )
