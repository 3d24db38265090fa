"""How one artefact compares with the Keras model."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The largest difference between an artefact's probabilities and the Keras model's.

    Args:
        path: The artefact.
        largest_difference: Over all images and classes, in [0, 1]; NaN if a probability is.
        worst_image: Index of the image where it occurs.
        tolerance: The largest difference allowed.

    Example:
        >>> Comparison("model.tflite", 3e-7, worst_image=2, tolerance=1e-4).ok
        True
    """

    path: str
    largest_difference: float
    worst_image: int
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the artefact agrees; never with NaN."""
        return self.largest_difference <= self.tolerance
