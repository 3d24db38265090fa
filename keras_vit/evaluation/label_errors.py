"""Images whose label is likely wrong, by confident learning.

Letters: N images; K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_MIN_THRESHOLD = 2e-6  # lower bound of a class's threshold
_ROUNDING = 1e-6


def label_errors(labels: ArrayLike, probabilities: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images whose label is likely wrong, and their likely classes.

    A probability is confident if it is at least the mean probability of the class among the images
    with its label. An image's label is likely wrong if another class is confident, and if it is not
    the most probable class.

    Args:
        labels: Given classes, (N,), integers in [0, K).
        probabilities: Probability of each class, (N, K), by models that were not trained on the
            image.

    Returns:
        Indices of the images, that with the least probable label first, and the likely class of
        each.

    Examples:
        >>> probabilities = [[0.9, 0.1], [0.7, 0.3], [0.9, 0.1], [0.1, 0.9], [0.2, 0.8]]
        >>> label_errors([0, 0, 1, 1, 1], probabilities)
        (array([2]), array([0]))

    Reference: https://arxiv.org/abs/1911.00068
    """
    y, p = np.asarray(labels), np.asarray(probabilities, np.float64)
    label_probabilities = p[np.arange(len(y)), y]
    counts = np.bincount(y, minlength=p.shape[1])
    sums = np.bincount(y, label_probabilities, minlength=p.shape[1])
    means = np.where(counts, np.maximum(sums / np.maximum(counts, 1), _MIN_THRESHOLD), np.inf)
    confident = p >= means - _ROUNDING
    predicted = p.argmax(axis=1)
    likely = np.where(confident.sum(axis=1) > 1, predicted, confident.argmax(axis=1))
    wrong = np.flatnonzero(confident.any(axis=1) & (likely != y) & (predicted != y))
    ordered = wrong[np.argsort(label_probabilities[wrong], kind="stable")]
    return ordered, likely[ordered]
