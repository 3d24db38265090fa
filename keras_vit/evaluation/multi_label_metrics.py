"""From a probability of each label to a report, where an image may show several or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn import metrics

from keras_vit.evaluation.label_scores import LabelScores
from keras_vit.evaluation.multi_label_report import MultiLabelReport


def evaluate_labels(
    labels: ArrayLike,
    probabilities: ArrayLike,
    label_names: Sequence[str],
    thresholds: Sequence[float],
) -> MultiLabelReport:
    """Scores predicted probabilities of N images against the labels that they show.

    A label without a yes has precision 0, one without images recall 0. Labels that neither occur
    nor got a yes are left out of the table and the means.

    Args:
        labels: 1 for the labels that an image shows and 0 for the others, (N, K).
        probabilities: Of each label, (N, K), in [0, 1].
        label_names: The names of the labels, K of them.
        thresholds: Probability from which on a label is a yes, (K,), in (0, 1).

    Returns:
        A `MultiLabelReport`.

    Raises:
        ValueError: If the shapes disagree, a label is not 0 or 1, a probability is not finite or
            there is nothing to evaluate.

    Example:
        >>> shown = [[1, 0], [1, 1], [0, 0]]
        >>> probabilities = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.4]]
        >>> report = evaluate_labels(shown, probabilities, ["daisy", "rose"], (0.5, 0.5))
        >>> round(report.subset_accuracy, 3), report.per_label[0].recall
        (0.667, 0.5)

    Reference: average precision as scikit-learn's `average_precision_score`, which does not
    interpolate
    """
    true, scores = np.asarray(labels), np.asarray(probabilities)
    check_labels(true, scores)
    for name, values in (("label_names", label_names), ("thresholds", thresholds)):
        if len(values) != true.shape[1]:
            raise ValueError(
                f"`{name}` must have one entry for each of the {true.shape[1]} columns of `labels`."
                f" Received: {len(values)} entries"
            )
    # In float32, as `keras_vit.Preprocessing.present` and exported models decide.
    answers = scores.astype(np.float32) >= np.asarray(thresholds, np.float32)
    shown = true.astype(bool)
    support, given, right = (each.sum(axis=0) for each in (shown, answers, shown & answers))  # (K,)
    rows = tuple(
        LabelScores(
            label_names[k],
            precision=_share(right[k], given[k]),
            recall=_share(right[k], support[k]),
            f1=_share(2 * right[k], given[k] + support[k]),
            average_precision=_average_precision(shown[:, k], scores[:, k]),
            support=int(support[k]),
            threshold=float(thresholds[k]),
        )
        for k in np.flatnonzero(support + given).tolist()
    )
    found = [row.average_precision for row in rows if row.average_precision is not None]
    return MultiLabelReport(
        num_examples=len(true),
        mean_average_precision=float(np.mean(found)) if found else None,
        micro_f1=_share(2 * right.sum(), given.sum() + support.sum()),
        macro_f1=float(np.mean([row.f1 for row in rows])) if rows else 0.0,
        subset_accuracy=float((shown == answers).all(axis=1).mean()),
        per_label=rows,
    )


def check_labels(labels: np.ndarray, probabilities: np.ndarray) -> None:
    """Raises `ValueError` unless labels and probabilities of several labels fit together.

    Args:
        labels: 0 or 1, (N, K).
        probabilities: (N, K).

    Raises:
        ValueError: If the shapes disagree, a label is not 0 or 1, a probability is not finite or
            there is nothing.

    Example:
        >>> check_labels(np.array([[0, 1]]), np.array([[0.2, 0.7]]))
    """
    if labels.ndim != 2 or not labels.size or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            "`labels` must be 1 for the labels that an image shows and 0 for the others, of shape "
            f"(N, K), and not empty. Received: labels of shape {labels.shape} with the values "
            f"{np.unique(labels)[:5].tolist()}"
        )
    if probabilities.shape != labels.shape:
        raise ValueError(
            f"`probabilities` must have the shape of the labels, {labels.shape}. "
            f"Received: probabilities of shape {probabilities.shape}"
        )
    broken = np.flatnonzero(~np.isfinite(probabilities).all(axis=1))
    if len(broken):
        raise ValueError(
            f"`probabilities` must be finite; {len(broken)} of {len(probabilities)} rows are not, "
            "the usual sign of a training that diverged: try a smaller learning rate. "
            f"Received: probabilities[{broken[0]}]={probabilities[broken[0]]}"
        )


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _average_precision(shown: np.ndarray, scores: np.ndarray) -> float | None:
    return float(metrics.average_precision_score(shown, scores)) if shown.any() else None
