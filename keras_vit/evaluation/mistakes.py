"""What a model is most sure about, and wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def surest_mistakes(labels: ArrayLike, probabilities: ArrayLike, number: int) -> np.ndarray:
    """Returns the images that a model is most sure about and wrong.

    Args:
        labels: True classes, (N,).
        probabilities: Of each class, (N, K).
        number: How many, at most.

    Returns:
        Indices of the images, the surest first.

    Example:
        >>> surest_mistakes([0, 0, 1], [[0.4, 0.6], [0.1, 0.9], [0.2, 0.8]], number=5).tolist()
        [1, 0]
    """
    scores = np.asarray(probabilities)
    wrong = np.flatnonzero(scores.argmax(axis=1) != np.asarray(labels))
    return wrong[np.argsort(-scores[wrong].max(axis=1), kind="stable")][:number]
