"""From which probability on a label is a yes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn import metrics

from keras_vit.evaluation.multi_label_metrics import check_labels

DEFAULT = 0.5
_MARGIN = 1e-6  # a threshold is never 0 or 1


def choose_thresholds(labels: ArrayLike, probabilities: ArrayLike) -> tuple[float, ...]:
    """Returns the threshold of each label with the highest F1 on some images.

    It lies half-way between the lowest probability that is a yes and the highest one that is a no.
    What is measured on the same images is optimistic, the more so the fewer show the label.

    Args:
        labels: 1 for the labels that an image shows and 0 for the others, (N, K).
        probabilities: Of each label, (N, K), in [0, 1].

    Returns:
        K thresholds in (0, 1); 0.5 for a label that none or all of the images show.

    Raises:
        ValueError: If the shapes disagree, a label is not 0 or 1, a probability is not finite or
            there is nothing to choose by.

    Example:
        >>> choose_thresholds([[0], [1], [1], [0]], [[0.1], [0.3], [0.9], [0.2]])
        (0.25,)
    """
    true, scores = np.asarray(labels), np.asarray(probabilities, np.float64)
    check_labels(true, scores)
    return tuple(_best(true[:, k], scores[:, k]) for k in range(true.shape[1]))


def _best(shown: np.ndarray, scores: np.ndarray) -> float:
    if len(np.unique(shown)) < 2:
        return DEFAULT
    precision, recall, lowest = metrics.precision_recall_curve(shown, scores)
    # The last point of the curve belongs to no threshold.
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    below = lowest[best - 1] if best else 0.0
    return float(np.clip(round((lowest[best] + below) / 2, 9), _MARGIN, 1 - _MARGIN))
