"""What a learning rate test saw."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

# Share of the loss by which it has to fall to count.
_FALL = 0.05
# Steps over which a median takes out the difference between batches; an odd number.
_WINDOW = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """The loss while the learning rate grows, S steps.

    Args:
        rates: Learning rate of each step, growing, (S,).
        losses: The loss after each step, divided by that of the same images before the first
            one, (S,); infinite where it was no number.

    Example:
        >>> curve = Curve(np.logspace(-4, 2, 7), np.array([1, 1, 0.9, 0.6, 0.3, 0.9, 5]))
        >>> curve.falls_from, curve.lowest_at, curve.rises_from
        (0.01, 1.0, 10.0)
    """

    rates: np.ndarray
    losses: np.ndarray

    @functools.cached_property
    def smooth(self) -> np.ndarray:
        """The running median of the losses, (S,)."""
        if len(self.losses) < 4 * _WINDOW:
            return np.asarray(self.losses, float)
        half = _WINDOW // 2
        padded = np.pad(np.asarray(self.losses, float), half, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)  # (S, window)
        return np.median(windows, axis=1)

    @property
    def lowest(self) -> int:
        """Step with the lowest loss."""
        return int(np.argmin(self.smooth))

    @property
    def falls(self) -> bool:
        """Whether there is a rate at which the loss falls."""
        return bool(self.smooth[self.lowest] <= 1 - _FALL)

    @property
    def falls_from(self) -> float | None:
        """Rate from which on the loss is lower by a twentieth."""
        first = self._first_fall
        return None if first is None else float(self.rates[first])

    @property
    def lowest_at(self) -> float | None:
        """Rate of the lowest loss."""
        return float(self.rates[self.lowest]) if self.falls else None

    @property
    def rises_from(self) -> float | None:
        """Rate from which on half of what was gained, or all of it, is lost again."""
        least = self.smooth[self.lowest]
        limit = (1 + least) / 2 if self.falls else 1.5
        behind = np.flatnonzero(self.smooth[self.lowest :] > limit)
        return float(self.rates[self.lowest + behind[0]]) if len(behind) else None

    @property
    def travelled(self) -> float | None:
        """Sum of the rates until the loss was lower by a twentieth.

        So many steps of a constant rate go as far as this sum, divided by the rate.
        """
        first = self._first_fall
        return None if first is None else float(self.rates[: first + 1].sum())

    @property
    def _first_fall(self) -> int | None:
        below = np.flatnonzero(self.smooth <= 1 - _FALL)
        return int(below[0]) if len(below) else None
