"""Conformal prediction sets: classes that contain the true class with a chosen probability.

Letters: N images; K classes.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.preprocessing import Preprocessing


def conformal_threshold(labels: ArrayLike, probabilities: ArrayLike, coverage: float) -> float:
    """Returns the probability from which a class belongs to the prediction set.

    Sets of the classes with at least this probability contain the true class of a new image, drawn
    like the given ones, with probability `coverage` or more.

    Args:
        labels: True classes of images that the model was not trained on, (N,).
        probabilities: Predicted probabilities, (N, K).
        coverage: Probability, in (0, 1).

    Raises:
        ValueError: If there are too few images for the coverage.

    Examples:
        >>> conformal_threshold([0, 0, 0], [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], 0.5)
        0.6000000000000001

    Reference: algorithm 1 of https://arxiv.org/abs/2107.07511
    """
    p = np.asarray(probabilities, np.float64)
    own = np.sort(p[np.arange(len(p)), np.asarray(labels)])[::-1]
    last = math.ceil((len(own) + 1) * coverage)  # number of images that are covered
    if not 0 < coverage < 1 or last > len(own):
        raise ValueError(
            "`coverage` must be in (0, 1), and at most N / (N + 1) for N held-out images. "
            f"Received: coverage={coverage}, {len(own)} images"
        )
    # Between two images, so that runtimes with other rounding errors return the same sets.
    return float((own[last - 1] + (own[last] if last < len(own) else 0)) / 2)


def prediction_set(probabilities: Any, preprocessing: Preprocessing) -> Any:
    """Returns which classes belong to the prediction set, bool (..., K), never empty.

    Computes with NumPy for an array, and with Keras for a tensor.
    """
    ops: Any = np if isinstance(probabilities, np.ndarray) else keras.ops
    highest = ops.max(probabilities, axis=-1, keepdims=True)
    return probabilities >= ops.minimum(highest, np.float32(preprocessing.set_threshold or 0))


def set_outputs(probabilities: Any, preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns the outputs `set` and `set_size` of a graph, or nothing without a coverage."""
    if preprocessing.set_threshold is None:
        return {}
    inside = prediction_set(probabilities, preprocessing)
    return {"set": inside, "set_size": keras.ops.sum(keras.ops.cast(inside, "int32"), axis=-1)}
