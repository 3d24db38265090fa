"""Few-shot linear evaluation of frozen features, as in the ViT paper.

Letters: N examples; D features; K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_vit import arguments

SHOTS = (1, 5, 10, 25)
SEEDS = 10
# The authors' reported strength, and the constant feature that nearly exempts the bias from it:
# big_vision, configs/common_fewshot.py and evaluators/fewshot_lsr.py.
L2_STRENGTH = 2.0**10
_BIAS = 100.0
_SMALLEST_SPREAD = 1e-5  # added to standard deviations

Part = tuple[ArrayLike, ArrayLike]  # features and classes


class LeastSquares(NamedTuple):
    """Linear classifier fitted by regularized least squares.

    Args:
        mean: Mean of each feature, (D,).
        spread: Standard deviation of each feature, (D,).
        weights: (D + 1, K); the last row is for a constant feature.

    Examples:
        >>> classifier = fit_least_squares([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1], 2)
        >>> classifier.predict([[-1.0], [4.0]]).tolist()
        [0, 1]
    """

    mean: np.ndarray
    spread: np.ndarray
    weights: np.ndarray

    def predict(self, features: ArrayLike) -> np.ndarray:
        """Predicts the classes (N,) of features (N, D)."""
        x = _augmented(np.asarray(features, np.float64), self.mean, self.spread)
        return (x @ self.weights).argmax(axis=1)


class FewShot(NamedTuple):
    """Few-shot accuracies for a given number of examples per class.

    Args:
        shots: Examples per class; all examples of a class that has fewer.
        accuracies: Accuracy for each random sample of the examples, in [0, 1].

    Examples:
        >>> round(FewShot(5, (0.5, 0.75)).mean, 3)
        0.625
    """

    shots: int
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean accuracy over all random samples of the examples."""
        return float(np.mean(self.accuracies))

    @property
    def spread(self) -> float:
        """Sample standard deviation of the accuracies; 0 for a single accuracy."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0


def fit_least_squares(
    features: ArrayLike, labels: ArrayLike, num_classes: int, l2: float = L2_STRENGTH
) -> LeastSquares:
    """Fits a linear map from features to targets: 1 for the true class, -1 for all others.

    With X the standardized features and a constant feature of 100, W minimizes
    |X W - Y|^2 + l2 |W|^2. In closed form W is (X'X + l2 I)^-1 X'Y, or with fewer examples than
    features X'(XX' + l2 I)^-1 Y.

    Args:
        features: Features (N, D).
        labels: Class of each row, (N,), integers in [0, K).
        num_classes: Number K of classes.
        l2: Regularization strength, above 0.

    Returns:
        The classifier.

    Raises:
        ValueError: If the shapes disagree, or `l2` is not above 0.

    Examples:
        >>> fit_least_squares(np.eye(3), [0, 1, 1], 2).weights.shape
        (4, 2)

    Reference: section 4.1 of https://arxiv.org/abs/2010.11929
    """
    x, y = arrays_of((features, labels), "features")
    arguments.positive("l2", l2)
    mean, spread = x.mean(axis=0), x.std(axis=0) + _SMALLEST_SPREAD
    x = _augmented(x, mean, spread)  # (N, D + 1)
    targets = 2.0 * np.eye(num_classes)[y] - 1.0  # (N, K)
    rows, columns = x.shape
    if rows >= columns:
        weights = np.linalg.solve(x.T @ x + l2 * np.eye(columns), x.T @ targets)
    else:
        weights = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(rows), targets)
    return LeastSquares(mean, spread, weights)


def few_shot(
    training: Part,
    test: Part,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    l2: float = L2_STRENGTH,
) -> tuple[FewShot, ...]:
    """Returns the accuracy of linear classifiers fitted to only a few examples per class.

    For each seed, the examples of a class are shuffled once, so 5 shots include the 1 shot.

    Args:
        training: Features (N, D) and classes (N,) to draw examples from.
        test: Features and classes of the test examples.
        shots: Numbers of examples per class.
        seeds: Number of random samples.
        l2: Regularization strength.

    Returns:
        The accuracies for each number of shots.

    Raises:
        ValueError: If the shapes disagree, or there are no examples.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 90)
        >>> features = np.eye(3)[labels] + rng.normal(0, 0.1, (90, 3))
        >>> results = few_shot((features[:60], labels[:60]), (features[60:], labels[60:]), seeds=2)
        >>> results[0].shots, results[-1].mean
        (1, 1.0)

    Reference: section 4.1 of https://arxiv.org/abs/2010.11929, as implemented by `fewshot_lsr.py`
    of https://github.com/google-research/big_vision
    """
    (x, y), (test_x, test_y) = arrays_of(training, "training"), arrays_of(test, "test")
    num_classes = int(max(y.max(), test_y.max())) + 1
    accuracies: Mapping[int, list[float]] = {number: [] for number in shots}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        shuffled = [rng.permutation(np.flatnonzero(y == k)) for k in range(num_classes)]
        for number in shots:
            selected = np.concatenate([indices[:number] for indices in shuffled])
            model = fit_least_squares(x[selected], y[selected], num_classes, l2)
            accuracies[number].append(float((model.predict(test_x) == test_y).mean()))
    return tuple(FewShot(number, tuple(values)) for number, values in accuracies.items())


def arrays_of(part: Part, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns features (N, D) and classes (N,) as arrays; raises `ValueError` if they disagree."""
    x, y = np.asarray(part[0], np.float64), np.asarray(part[1])
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(y):
        raise ValueError(
            f"`{name}` must contain features of shape (N, D) and one class per row. Received: "
            f"shapes {x.shape} and {y.shape}"
        )
    return x, y


def _augmented(x: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return np.pad((x - mean) / spread, ((0, 0), (0, 1)), constant_values=_BIAS)
