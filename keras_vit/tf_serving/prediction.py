"""The prediction for one image."""

from __future__ import annotations

import dataclasses

import numpy as np

BEST = 5  # classes of a prediction


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one image.

    Args:
        probabilities: Of each class, (R,), float32.
        top_labels: The most probable classes, best first; none for an image that cannot be read.
        top_scores: Their probabilities.
        present: The labels above their thresholds, most probable first; None for exclusive classes.
        message: Why the image cannot be read; empty if it can.

    Example:
        >>> found = Prediction(np.array([0.25, 0.75]), ("rose", "daisy"), (0.75, 0.25))
        >>> found.ok, found.label, found.score, found.text()
        (True, 'rose', 0.75, 'rose 0.7500   daisy 0.2500')
    """

    probabilities: np.ndarray
    top_labels: tuple[str, ...]
    top_scores: tuple[float, ...]
    present: tuple[str, ...] | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the image could be read."""
        return not self.message

    @property
    def label(self) -> str | None:
        """The most probable class; None for an image that cannot be read."""
        return self.top_labels[0] if self.ok else None

    @property
    def score(self) -> float | None:
        """Its probability."""
        return self.top_scores[0] if self.ok else None

    def text(self, top: int = 3) -> str:
        """Returns the answer as a line.

        Args:
            top: How many classes to name where they exclude one another.

        Returns:
            Labels with their probabilities, or what is wrong with the image.
        """
        if not self.ok:
            return self.message
        named = dict(zip(self.top_labels, self.top_scores, strict=True))
        shown = self.top_labels[:top] if self.present is None else self.present
        scores = [f"{label} {named[label]:.4f}" if label in named else label for label in shown]
        return "   ".join(scores) or "none of the labels"
