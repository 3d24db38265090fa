"""Confidence calibration of classifiers, and temperature scaling.

Letters: N images; K classes; M bins.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

_MIN_PROBABILITY = 1e-12  # lower bound of a probability before its logarithm
_MAX_TEMPERATURE = 20.0  # a temperature lies between 1 / 20 and 20
_FOLDS = 2
_MIN_IMAGES = 100  # images to choose a model's temperature on
_MIN_CHANGE = 0.01  # of a temperature, relative to 1
_MAX_IMAGES = 20_000  # images to fit a temperature on
_MOST_NUMBERS = 20_000_000  # probabilities to fit on: 160 MB in float64
_BLOCK = 4096  # rows converted to float64 at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Reliability:
    """Accuracy and mean confidence of the predictions in each confidence bin.

    Args:
        counts: Images in each bin of confidence, (M,).
        confidence: Mean confidence in each bin, in [0, 1]; NaN in an empty bin, (M,).
        accuracy: Accuracy in each bin, in [0, 1]; NaN in an empty bin, (M,).
        error: Expected calibration error: the mean of |confidence - accuracy|, weighted by the
            counts, in [0, 1].

    Examples:
        >>> Reliability(np.array([4]), np.array([0.9]), np.array([0.75]), 0.15).error
        0.15
    """

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    error: float


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Reliability of a classifier's confidence before and after temperature scaling.

    Args:
        before: Reliability without temperature scaling.
        after: Reliability with temperatures fitted on the other half of the images.
        temperature: Fitted on all images; above 1 if the model is overconfident. None if the
            cross-entropy has no minimum between 1/20 and 20, as with correct predictions only.

    Examples:
        >>> probabilities = np.tile([0.9, 0.1], (20, 1))
        >>> calibration = calibrate([0] * 18 + [1] * 2, probabilities)
        >>> round(calibration.before.error, 3)
        0.0
    """

    before: Reliability
    after: Reliability
    temperature: float | None


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> Reliability:
    """Compares confidence with accuracy in confidence bins of equal width.

    Reference: equation 3 of https://arxiv.org/abs/1706.04599, with its 15 bins
    """
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # bins (a, b]
    counts = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(index, confidence, bins) / counts
        accuracy = np.bincount(index, correct, bins) / counts
    weights = counts / max(len(correct), 1)
    return Reliability(counts, mean, accuracy, float(np.nansum(weights * np.abs(mean - accuracy))))


def fit_temperature(
    labels: ArrayLike,
    probabilities: ArrayLike,
    lowest: float = 1 / _MAX_TEMPERATURE,
    smoothing: float = 0.0,
) -> float:
    """Finds the temperature, `lowest` to 20, that minimizes the cross-entropy.

    The fraction `smoothing` of each label is spread over all classes.

    Reference: section 4.2 of https://arxiv.org/abs/1706.04599
    """
    scores = np.asarray(probabilities)
    step = -(-len(scores) // min(_MAX_IMAGES, max(1, _MOST_NUMBERS // scores.shape[1])))
    true = np.asarray(labels)[::step]
    scores = scores[::step].astype(np.float64)
    logits = np.log(np.maximum(scores, _MIN_PROBABILITY))

    def loss(log_temperature: float) -> float:
        scaled = special.log_softmax(logits / np.exp(log_temperature), axis=1)
        true_logs = scaled[np.arange(len(true)), true]
        return float(-(1 - smoothing) * true_logs.mean() - smoothing * scaled.mean())

    bounds = lowest, _MAX_TEMPERATURE
    optimum = optimize.minimize_scalar(loss, bounds=np.log(bounds), method="bounded")
    at_bounds = {loss(np.log(bound)): bound for bound in bounds}
    least = min(at_bounds)
    return at_bounds[least] if least <= optimum.fun else float(np.exp(optimum.x))


def calibrate(labels: ArrayLike, probabilities: ArrayLike, seed: int = 0) -> Calibration:
    """Measures the calibration of a classifier before and after temperature scaling.

    The images are split at random into two halves; the temperature of each half is fitted on the
    other half, so that no image is scored with a temperature fitted on it.

    Args:
        labels: True classes, (N,).
        probabilities: Probability of each class, (N, K).
        seed: Seed of the split.

    Returns:
        The calibration.

    Raises:
        ValueError: If there are fewer than two images, or the shapes disagree.

    Examples:
        >>> confident = np.tile([0.99, 0.01], (100, 1))
        >>> result = calibrate([0] * 70 + [1] * 30, confident)
        >>> round(result.before.error, 2), result.after.error < 0.15
        (0.29, True)

    Reference: https://arxiv.org/abs/1706.04599
    """
    true, scores = np.asarray(labels), np.asarray(probabilities)
    if true.ndim != 1 or scores.shape[:1] != true.shape or scores.ndim != 2 or len(true) < _FOLDS:
        raise ValueError(
            "`probabilities` must have one row per label, and at least two rows. Received: "
            f"labels of shape {true.shape}, probabilities of shape {scores.shape}"
        )
    correct = scores.argmax(axis=1) == true
    before = reliability(scores.max(axis=1).astype(np.float64), correct)
    # A temperature changes the confidence of a prediction, not the predicted class.
    after = reliability(_cross_fitted(true, scores, seed)[0], correct)
    best = fit_temperature(true, scores)
    within_bounds = 1 / _MAX_TEMPERATURE < best < _MAX_TEMPERATURE
    return Calibration(before, after, best if within_bounds else None)


def choose_temperature(labels: ArrayLike, probabilities: ArrayLike, seed: int = 0) -> float:
    """Returns the temperature for a model, or 1 if it would not lower the cross-entropy.

    The cross-entropy is that of each half of the images with the temperature fitted on the other
    half. With fewer than 100 images the temperature is 1.
    """
    true, scores = np.asarray(labels), np.asarray(probabilities)
    if len(true) < _MIN_IMAGES:
        return 1.0
    log_likelihoods = np.log(np.maximum(scores[np.arange(len(true)), true], _MIN_PROBABILITY))
    best = fit_temperature(true, scores)
    improves = _cross_fitted(true, scores, seed)[1].mean() > log_likelihoods.mean()
    usable = 1 / _MAX_TEMPERATURE < best < _MAX_TEMPERATURE and abs(best - 1) > _MIN_CHANGE
    return best if improves and usable else 1.0


def _cross_fitted(true: np.ndarray, scores: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns confidences and log probabilities, by temperatures fitted on the other half."""
    fold = np.random.default_rng(seed).permutation(len(true)) % _FOLDS
    confidence, logs = np.empty(len(true)), np.empty(len(true))
    for half in range(_FOLDS):
        scored = np.flatnonzero(fold == half)
        fitted = np.flatnonzero(fold != half)
        temperature = fit_temperature(true[fitted], scores[fitted])
        for block in np.array_split(scored, -(-len(scored) // _BLOCK)):
            probabilities = with_temperature(scores[block], temperature)
            confidence[block] = probabilities.max(axis=1)
            true_probabilities = probabilities[np.arange(len(block)), true[block]]
            logs[block] = np.log(np.maximum(true_probabilities, _MIN_PROBABILITY))
    return confidence, logs


def with_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the probabilities (N, K) after dividing their logits by a temperature."""
    scores = np.asarray(probabilities, np.float64)
    return special.softmax(np.log(np.maximum(scores, _MIN_PROBABILITY)) / temperature, axis=1)
