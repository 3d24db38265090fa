"""The scores of one class."""

from __future__ import annotations

from typing import NamedTuple


class ClassScores(NamedTuple):
    """One row of the evaluation table.

    Args:
        name: Name of the class.
        precision: Share of the predictions of this class that are right, in [0, 1].
        recall: Share of the examples of this class that are found, in [0, 1].
        f1: Harmonic mean of precision and recall, in [0, 1].
        support: Number of examples of this class.

    Example:
        >>> ClassScores("daisy", precision=0.5, recall=1.0, f1=2 / 3, support=7).support
        7
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int
