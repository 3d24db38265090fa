"""The scores of one label, where an image may show several or none."""

from __future__ import annotations

from typing import NamedTuple


class LabelScores(NamedTuple):
    """One row of the evaluation table.

    Args:
        name: Name of the label.
        precision: Share of the images with a yes that show it, in [0, 1].
        recall: Share of the images that show it which got a yes, in [0, 1].
        f1: Harmonic mean of precision and recall, in [0, 1].
        average_precision: Precision, averaged over the images that show it in the order of their
            probabilities, in [0, 1]; no threshold counts. None where no image shows it.
        support: Number of images that show it.
        threshold: Probability from which on it is a yes, in (0, 1).

    Example:
        >>> LabelScores("daisy", 0.5, 1.0, 2 / 3, 0.9, support=7, threshold=0.4).support
        7
    """

    name: str
    precision: float
    recall: float
    f1: float
    average_precision: float | None
    support: int
    threshold: float
