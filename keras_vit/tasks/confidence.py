"""Options for prediction sets, comparisons with the training images, and added classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_vit import arguments
from keras_vit.data import Examples


@dataclasses.dataclass(frozen=True)
class Confidence:
    """Options for further outputs of an exported classifier, and images to choose thresholds on.

    Args:
        coverage: Probability with which prediction sets contain the true class; None for no sets.
        false_alarm_rate: Fraction of images like the held-out ones that are taken to be out of
            distribution; None for no out-of-distribution scores.
        nearest_images: Whether to find the nearest training images.
        prototypes: Whether classes can be added to the exported model.
        training: Function that returns the training images; None for a model without a run.
        held_out: Images that the model was not trained on.
    """

    coverage: float | None
    false_alarm_rate: float | None
    nearest_images: bool
    prototypes: bool
    training: Callable[[], Examples] | None
    held_out: Examples

    def names(self) -> list[str]:
        """Returns the names of the options that are given."""
        names = ("coverage", "false_alarm_rate", "nearest_images", "prototypes")
        values = {name: getattr(self, name) for name in names}
        return [name for name, value in values.items() if value is not None and value is not False]

    def check(self, task: Any) -> None:
        """Raises `ValueError` if an option is out of range or does not apply to a task."""
        for name in self.names():
            if name in ("coverage", "false_alarm_rate"):
                arguments.inner_fraction(name, getattr(self, name))
            if not task.has_sets:
                raise ValueError(
                    f"`{name}` must be left out unless every image has one class. Received: "
                    f"{name}={getattr(self, name)} for the task {task.name}"
                )
        options = [name for name in self.names() if name != "coverage"]
        if options and self.training is None:
            raise ValueError(
                f"`{options[0]}` must be used with the folder of a run, which names the training "
                f"images. Received: {options[0]}={getattr(self, options[0])} and a model"
            )
        count = len(self.held_out)
        if self.false_alarm_rate is not None and self.false_alarm_rate < 1 / (count + 1):
            raise ValueError(
                "`false_alarm_rate` must be at least 1 / (N + 1) for N held-out images. Received: "
                f"false_alarm_rate={self.false_alarm_rate}, {count} images"
            )
