"""Multi-label metrics (average precision, per-label scores) and the choice of thresholds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn import metrics

from keras_vit.tasks.classification.metrics import decimal, require_finite, score_table


class LabelScores(NamedTuple):
    """Scores of one label: one row of the evaluation table.

    Args:
        name: Name of the label.
        precision: Fraction of the images with a positive prediction that have the label, in [0, 1].
        recall: Fraction of the images with the label that are predicted positive, in [0, 1].
        f1: Harmonic mean of precision and recall, in [0, 1].
        average_precision: Precision averaged over the images with the label, ordered by
            probability, in [0, 1]; independent of the threshold. None without such images.
        support: Number of images with the label.
        threshold: Lowest probability of a positive prediction, in (0, 1).

    Examples:
        >>> LabelScores("daisy", 0.5, 1.0, 2 / 3, 0.9, support=7, threshold=0.4).support
        7
    """

    name: str
    precision: float
    recall: float
    f1: float
    average_precision: float | None
    support: int
    threshold: float


_COLUMNS = ("precision", "recall", "f1-score", "avg prec", "support", "threshold")


@dataclasses.dataclass(frozen=True)
class MultiLabelReport:
    """Average precision, F1 and per-label scores of a multi-label classifier.

    The mean average precision measures the ranking of the images and needs no thresholds. All
    other metrics depend on thresholds and are optimistic on the images used to choose them.

    Args:
        num_examples: Number of images evaluated.
        mean_average_precision: Mean over the labels that occur, in [0, 1]; None if none occurs.
        micro_f1: F1 over all labels and images together, in [0, 1].
        macro_f1: Mean F1 of the labels of `per_label`, in [0, 1].
        subset_accuracy: Fraction of the images with every label correct, in [0, 1].
        per_label: One row per label that occurs or is predicted, in the order of the model's
            labels.

    Examples:
        >>> report = MultiLabelReport(
        ...     num_examples=8,
        ...     mean_average_precision=0.85,
        ...     micro_f1=0.75,
        ...     macro_f1=0.7,
        ...     subset_accuracy=0.5,
        ...     per_label=(LabelScores("daisy", 0.6, 0.75, 2 / 3, 0.85, 4, 0.5),),
        ... )
        >>> report.text().splitlines()[-2]
        'mean average precision 0.8500'
    """

    num_examples: int
    mean_average_precision: float | None
    micro_f1: float
    macro_f1: float
    subset_accuracy: float
    per_label: tuple[LabelScores, ...]

    def text(self) -> str:
        """Formats a table of the scores per label, followed by the metrics over all labels."""
        lines = [
            *score_table(_COLUMNS, self.per_label, "labels"),
            f"mean average precision {decimal(self.mean_average_precision)}",
            f"F1 {self.micro_f1:.4f} micro, {self.macro_f1:.4f} macro; all labels correct "
            f"for {self.subset_accuracy:.4f} of {self.num_examples} images",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a dictionary that can be stored as JSON."""
        return {**vars(self), "per_label": [row._asdict() for row in self.per_label]}


def evaluate_labels(
    labels: ArrayLike,
    probabilities: ArrayLike,
    label_names: Sequence[str],
    thresholds: Sequence[float],
) -> MultiLabelReport:
    """Evaluates the predicted probabilities of N images against their labels.

    A label without positive predictions has precision 0, a label without images has recall 0.
    Labels that neither occur nor are predicted are omitted from the table and the means.

    Args:
        labels: 1 for the labels of an image and 0 for all other labels, (N, K).
        probabilities: Probability of each label, (N, K), in [0, 1].
        label_names: The names of the K labels.
        thresholds: Lowest probability of a positive prediction, (K,), in (0, 1).

    Returns:
        A `MultiLabelReport`.

    Raises:
        ValueError: If the shapes disagree, a label is not 0 or 1, a probability is not finite or
            `labels` is empty.

    Examples:
        >>> labels = [[1, 0], [1, 1], [0, 0]]
        >>> probabilities = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.4]]
        >>> report = evaluate_labels(labels, probabilities, ["daisy", "rose"], (0.5, 0.5))
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
    # In float32, as in `keras_vit.Preprocessing.present` and exported models.
    predicted = scores.astype(np.float32) >= np.asarray(thresholds, np.float32)
    true_labels = true.astype(bool)
    masks = (true_labels, predicted, true_labels & predicted)
    support, num_predicted, true_positives = (mask.sum(axis=0) for mask in masks)  # (K,)
    rows = tuple(
        LabelScores(
            label_names[k],
            precision=_fraction(true_positives[k], num_predicted[k]),
            recall=_fraction(true_positives[k], support[k]),
            f1=_fraction(2 * true_positives[k], num_predicted[k] + support[k]),
            average_precision=_average_precision(true_labels[:, k], scores[:, k]),
            support=int(support[k]),
            threshold=float(thresholds[k]),
        )
        for k in np.flatnonzero(support + num_predicted).tolist()
    )
    precisions = [row.average_precision for row in rows if row.average_precision is not None]
    return MultiLabelReport(
        num_examples=len(true),
        mean_average_precision=float(np.mean(precisions)) if precisions else None,
        micro_f1=_fraction(2 * true_positives.sum(), num_predicted.sum() + support.sum()),
        macro_f1=float(np.mean([row.f1 for row in rows])) if rows else 0.0,
        subset_accuracy=float((true_labels == predicted).all(axis=1).mean()),
        per_label=rows,
    )


def check_labels(labels: np.ndarray, probabilities: np.ndarray) -> None:
    """Raises `ValueError` if multi-label targets or probabilities (N, K) are invalid."""
    if labels.ndim != 2 or not labels.size or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            "`labels` must be a non-empty array of shape (N, K), with 1 for the labels that an "
            f"image shows and 0 for the other labels. Received: labels of shape {labels.shape} "
            f"with the values {np.unique(labels)[:5].tolist()}"
        )
    if probabilities.shape != labels.shape:
        raise ValueError(
            f"`probabilities` must have the shape of the labels, {labels.shape}. "
            f"Received: probabilities of shape {probabilities.shape}"
        )
    require_finite(probabilities)


def _fraction(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _average_precision(true: np.ndarray, scores: np.ndarray) -> float | None:
    return float(metrics.average_precision_score(true, scores)) if true.any() else None


DEFAULT = 0.5
_MARGIN = 1e-6  # a threshold is never 0 or 1


def choose_thresholds(labels: ArrayLike, probabilities: ArrayLike) -> tuple[float, ...]:
    """Chooses the threshold of each label that maximizes its F1 score on the given images.

    A threshold is halfway between the lowest positive and the highest negative probability.
    Metrics on the same images are optimistic, the more so the fewer images have the label.

    Args:
        labels: 1 for the labels of an image and 0 for all other labels, (N, K).
        probabilities: Probability of each label, (N, K), in [0, 1].

    Returns:
        K thresholds in (0, 1); 0.5 for a label that all images have, or none.

    Raises:
        ValueError: If the shapes disagree, a label is not 0 or 1, a probability is not finite or
            `labels` is empty.

    Examples:
        >>> choose_thresholds([[0], [1], [1], [0]], [[0.1], [0.3], [0.9], [0.2]])
        (0.25,)
    """
    true, scores = np.asarray(labels), np.asarray(probabilities, np.float64)
    check_labels(true, scores)
    return tuple(_best_threshold(true[:, k], scores[:, k]) for k in range(true.shape[1]))


def _best_threshold(true_labels: np.ndarray, scores: np.ndarray) -> float:
    if len(np.unique(true_labels)) < 2:
        return DEFAULT
    precision, recall, thresholds = metrics.precision_recall_curve(true_labels, scores)
    # The last point of the curve has no threshold.
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    previous = thresholds[best - 1] if best else 0.0
    return float(np.clip(round((thresholds[best] + previous) / 2, 9), _MARGIN, 1 - _MARGIN))
