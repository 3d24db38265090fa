"""Confidence intervals and significance tests for accuracies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

# Significance level: largest p-value of a difference that counts.
_SIGNIFICANCE = 1e-3


class McNemar(NamedTuple):
    """Result of McNemar's exact test for two classifiers on the same images.

    Args:
        only_first: Number of images that only the first classifier predicts correctly.
        only_second: Number of images that only the second classifier predicts correctly.
        p_value: Probability of a difference at least as large if both are equally accurate, in
            [0, 1].

    Examples:
        >>> McNemar(only_first=12, only_second=3, p_value=0.035).only_first
        12
    """

    only_first: int
    only_second: int
    p_value: float

    def text(self, first: str, second: str) -> str:
        """Describes the result of the test in one sentence.

        Args:
            first: Name of the first classifier.
            second: Name of the second classifier.

        Returns:
            The sentence.

        Examples:
            >>> McNemar(12, 3, 0.035).text("ViT", "ResNet")
            'ViT alone is right on 12 images, ResNet alone on 3: p = 0.035, unlikely to be chance.'
        """
        p = f"p = {self.p_value:.2g}" if self.p_value >= 1e-4 else "p < 0.0001"
        verdict = "unlikely to be chance" if self.p_value < 0.05 else "may be chance"
        return (
            f"{first} alone is right on {self.only_first} images, {second} alone on "
            f"{self.only_second}: {p}, {verdict}."
        )


def mcnemar(labels: ArrayLike, first: ArrayLike, second: ArrayLike) -> McNemar:
    """Tests whether two classifiers differ in accuracy on the same images.

    Only images that exactly one classifier predicts correctly are counted. If both classifiers are
    equally accurate, each of them is that one with probability 1/2, which is a binomial test.

    Args:
        labels: True classes, (N,).
        first: Classes predicted by the first classifier, (N,).
        second: Classes predicted by the second classifier, (N,).

    Returns:
        The two-sided exact test.

    Raises:
        ValueError: If the lengths differ.

    Examples:
        >>> mcnemar([0, 0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 0])
        McNemar(only_first=2, only_second=0, p_value=0.5)

    Reference: Q. McNemar, "Note on the sampling error of the difference between correlated
    proportions or percentages", Psychometrika 12 (1947)
    """
    true, a, b = np.asarray(labels), np.asarray(first), np.asarray(second)
    if not true.shape == a.shape == b.shape or true.ndim != 1:
        raise ValueError(
            "`labels`, `first` and `second` must contain the classes of the same images. "
            f"Received: shapes {true.shape}, {a.shape} and {b.shape}"
        )
    only_a = int(((a == true) & (b != true)).sum())
    only_b = int(((b == true) & (a != true)).sum())
    num_differing = only_a + only_b
    p = float(stats.binomtest(only_a, num_differing).pvalue) if num_differing else 1.0
    return McNemar(only_a, only_b, p)


def mean_interval(values: ArrayLike, seed: int = 0) -> tuple[float, float, float]:
    """Returns the mean of some values and its bootstrap confidence interval.

    Args:
        values: Measurements, (N,).
        seed: Seed of the resampling.

    Returns:
        Mean, and lower and upper end of its 95% interval (percentiles of 9999 resamples); all
        three are equal if all measurements are equal.

    Raises:
        ValueError: If there are fewer than two measurements.

    Examples:
        >>> mean, low, high = mean_interval([0.0, 1.0] * 50)
        >>> mean, round(low, 1), round(high, 1)
        (0.5, 0.4, 0.6)
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(
            f"`values` must contain at least two numbers. Received: values of shape {array.shape}"
        )
    mean = float(array.mean())
    if np.ptp(array) == 0:
        return mean, mean, mean
    interval = stats.bootstrap(
        (array,), np.mean, method="percentile", rng=np.random.default_rng(seed), batch=100
    ).confidence_interval
    return mean, float(interval.low), float(interval.high)


def wilson(num_correct: int, total: int) -> tuple[float, float]:
    """Returns the 95% Wilson interval of a proportion."""
    interval = stats.binomtest(int(num_correct), int(total)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def exact_interval(values: np.ndarray, level: float) -> tuple[float, float]:
    """Returns the Clopper-Pearson interval of the proportion of True in an array."""
    count, other, tail = values.sum(), (~values).sum(), (1 - level) / 2
    ends = stats.beta.ppf((tail, 1 - tail), (count, count + 1), (other + 1, other))
    low, high = np.where(np.isnan(ends), (0, 1), ends)  # NaN at a proportion of 0 or 1
    return float(low), float(high)


def better_than_guessing(correct: np.ndarray, labels: np.ndarray, num_classes: int) -> bool:
    """Returns whether predictions are significantly better than guessing."""
    chance = max(1 / num_classes, float(np.bincount(labels).max()) / len(labels))
    test = stats.binomtest(int(correct.sum()), len(correct), chance, alternative="greater")
    return bool(test.pvalue < _SIGNIFICANCE)


def clearly_better(new: np.ndarray, old: np.ndarray, gain: float) -> bool:
    """Returns whether new predictions are significantly better than the old ones."""
    won, lost = int((new & ~old).sum()), int((old & ~new).sum())
    if (won - lost) / len(new) < max(gain, 1 / len(new)):
        return False
    return bool(stats.binomtest(won, won + lost, 0.5, alternative="greater").pvalue < _SIGNIFICANCE)
