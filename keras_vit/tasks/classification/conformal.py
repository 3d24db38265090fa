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
    true_probabilities = p[np.arange(len(p)), np.asarray(labels)]
    if not 0 < coverage < 1 or coverage > len(true_probabilities) / (len(true_probabilities) + 1):
        raise ValueError(
            "`coverage` must be in (0, 1), and at most N / (N + 1) for N held-out images. "
            f"Received: coverage={coverage}, {len(true_probabilities)} images"
        )
    return -upper_bound(-true_probabilities, coverage, largest=0.0)


def upper_bound(values: np.ndarray, fraction: float, largest: float) -> float:
    """Returns a bound that a new value exceeds with a probability of at most 1 - `fraction`.

    The new value is drawn like the N `values`. The bound is between two of them, so that rounding
    errors change no decision, or between the highest and `largest`. `fraction` <= N / (N + 1).
    """
    ascending = [*np.sort(values), largest]
    num_below = math.ceil(round((len(values) + 1) * fraction, 9))
    return float((ascending[num_below - 1] + ascending[num_below]) / 2)


def prediction_set(probabilities: Any, preprocessing: Preprocessing) -> Any:
    """Returns which classes belong to the prediction set, bool (..., K), never empty.

    Computes with NumPy for an array, and with Keras for a tensor.
    """
    ops: Any = np if isinstance(probabilities, np.ndarray) else keras.ops
    highest = ops.max(probabilities, axis=-1, keepdims=True)
    # A minimum of the two bounds would limit integers of TFLite to the range of the threshold.
    above_threshold = probabilities >= np.float32(preprocessing.set_threshold or 0)
    return ops.logical_or(above_threshold, probabilities >= highest)


def set_outputs(probabilities: Any, preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns the outputs `set` and `set_size` of a graph, or nothing without a coverage."""
    if preprocessing.set_threshold is None:
        return {}
    in_set = prediction_set(probabilities, preprocessing)
    return {"set": in_set, "set_size": keras.ops.sum(keras.ops.cast(in_set, "int32"), axis=-1)}
