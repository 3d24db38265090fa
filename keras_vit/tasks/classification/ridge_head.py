"""Classifiers fitted in closed form on frozen features, with cross-validated regularization.

Letters: N images; D features; K classes.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.model_selection import StratifiedKFold

from keras_vit import data, models
from keras_vit.models.features import classifiers
from keras_vit.tasks.classification.calibration import fit_temperature

# Regularization strengths for each image; the features are standardized.
_STRENGTHS = 10.0 ** np.arange(-3, 2.5, 0.5)
_FOLDS = 5
_LOWEST = 1 / 5000  # temperature: scores are at most about 1, and much less if regularized


class RidgeHead(NamedTuple):
    """Weights of a linear classifier, and its results in cross-validation.

    Args:
        kernel: (D, K).
        bias: (K,).
        strength: Chosen regularization strength for each image.
        accuracy: Cross-validated accuracy, in [0, 1].
        log_loss: Cross-validated cross-entropy.
    """

    kernel: np.ndarray
    bias: np.ndarray
    strength: float
    accuracy: float
    log_loss: float


def fit_ridge(features: ArrayLike, labels: ArrayLike, classes: int, seed: int = 0) -> RidgeHead:
    """Fits a linear classifier by ridge regression of the classes' indicators.

    The regularization strength and the scale of the logits have the lowest cross-entropy in
    stratified five-fold cross-validation, the scale as if one more image had no known class:
    without it, the scale of separable classes has no limit.

    Args:
        features: Features (N, D).
        labels: Class of each row, (N,), integers in [0, K).
        classes: Number K of classes.
        seed: Seed of the folds.

    Returns:
        The classifier.

    Raises:
        ValueError: If no class has two images, too few for the cross-validation.

    Examples:
        >>> labels = np.arange(30) % 3
        >>> result = fit_ridge(np.eye(3)[labels], labels, 3)
        >>> result.accuracy, (np.eye(3) @ result.kernel + result.bias).argmax(axis=1).tolist()
        (1.0, [0, 1, 2])
    """
    x, labels = np.asarray(features, np.float64), np.asarray(labels)
    largest = int(np.bincount(labels).max())
    if largest < 2:
        raise ValueError(
            "A class must have two or more training images to fit a classifier in closed form. "
            f"Received: {len(labels)} images of {classes} classes, one of each"
        )
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    x = (x - mean) / spread
    prior = np.bincount(labels, minlength=classes) / len(labels)
    targets = np.eye(classes)[labels] - prior  # (N, K)
    scores = np.empty((len(_STRENGTHS), len(labels), classes))
    folds = StratifiedKFold(min(_FOLDS, largest), shuffle=True, random_state=seed)
    # Some classes may have fewer images than there are folds.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        for fitted, held_out in folds.split(x, labels):
            for row, kernel in zip(scores, _kernels(x[fitted], targets[fitted]), strict=True):
                row[held_out] = x[held_out] @ kernel + prior
    results, smoothing = [], 1 / (len(labels) + 1)
    for row in scores:
        temperature = fit_temperature(labels, special.softmax(row, axis=1), _LOWEST, smoothing)
        logs = special.log_softmax(row / temperature, axis=1)
        results.append((-logs[np.arange(len(labels)), labels].mean(), temperature))
    best = min(range(len(results)), key=lambda i: results[i])
    log_loss, temperature = results[best]
    kernel = _kernels(x, targets)[best] / spread[:, None]
    accuracy = float((scores[best].argmax(axis=1) == labels).mean())
    bias = (prior - mean @ kernel) / temperature
    return RidgeHead(kernel / temperature, bias, float(_STRENGTHS[best]), accuracy, float(log_loss))


def fit_head(network: keras.Model, training: data.Examples, seed: int) -> None:
    """Fits a network's classifier in closed form, and prints its cross-validated results."""
    print(f"Fitting the classifier on the features of {len(training)} images ...", flush=True)
    features = np.asarray(models.features(network, training))
    result = fit_ridge(features, training.targets, len(training.class_names), seed)
    for head in classifiers(network):
        head.set_weights([result.kernel, result.bias])
    print(
        f"Ridge regression: cross-validated accuracy {result.accuracy:.4f}, log loss "
        f"{result.log_loss:.4f}, regularization strength {result.strength:.2g} for each image."
    )


def _kernels(x: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
    """Returns (X'X + N s I)^-1 X'Y, (D, K), for every strength s."""
    values, vectors = np.linalg.eigh(x.T @ x)
    projected = vectors.T @ (x.T @ targets)
    return [vectors @ (projected / (values + len(x) * s)[:, None]) for s in _STRENGTHS]
