"""How sure a share is."""

from __future__ import annotations

from scipy import stats


def wilson(right: int, total: int) -> tuple[float, float]:
    """Returns the 95% Wilson interval of a share.

    Args:
        right: How many are right.
        total: Of how many, at least 1.

    Returns:
        Lower and upper end, in [0, 1].

    Example:
        >>> low, high = wilson(8, 10)
        >>> round(low, 3), round(high, 3)
        (0.49, 0.943)
    """
    interval = stats.binomtest(int(right), int(total)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
