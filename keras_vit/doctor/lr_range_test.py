"""Learning-rate range test, which measures the loss at increasing learning rates.

Letters: N images; h, w, C their height, width, channels; K classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from scipy import ndimage

from keras_vit.doctor.output_kind import as_logits
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training.training_model import TrainingModel

# Fraction of the initial loss by which a loss must decrease to have dropped.
_DROP = 0.05
# Odd number of steps of the running median, which removes the differences between batches.
_WINDOW = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Loss curve of a learning-rate range test with S steps.

    Args:
        rates: Learning rate of each step, in increasing order, (S,).
        losses: Loss after each step, divided by the loss of the same images before the first step,
            (S,); infinite instead of NaN.
    """

    rates: np.ndarray
    losses: np.ndarray

    @functools.cached_property
    def smooth(self) -> np.ndarray:
        """The losses smoothed by a running median, of shape (S,)."""
        window = 1 if len(self.losses) < 4 * _WINDOW else _WINDOW
        return ndimage.median_filter(np.asarray(self.losses, float), window, mode="nearest")

    @property
    def first_drop_rate(self) -> float | None:
        """Lowest learning rate at which the loss has dropped by 5%; None if it never has."""
        rates = self.rates[self.smooth <= 1 - _DROP]
        return float(rates[0]) if len(rates) else None

    @property
    def lowest_loss_rate(self) -> float | None:
        """Learning rate with the lowest loss; None if the loss does not drop."""
        return None if self.first_drop_rate is None else float(self.rates[self.smooth.argmin()])

    @property
    def divergence_rate(self) -> float | None:
        """Learning rate at which the loss regains half its drop, or passes 1.5 without a drop."""
        lowest = self.smooth.argmin()
        threshold = 1.5 if self.first_drop_rate is None else (1 + self.smooth[lowest]) / 2
        rates = self.rates[lowest:][self.smooth[lowest:] > threshold]
        return float(rates[0]) if len(rates) else None

    @property
    def summed_rate_to_drop(self) -> float | None:
        """Sum of the learning rates of all steps until the loss has dropped by 5%.

        Divided by a constant rate, this is the number of steps at that rate for the same drop.
        """
        first = self.first_drop_rate
        return None if first is None else float(self.rates[self.rates <= first].sum())


# Number of batches, used in turn.
BATCHES = 4
# Multiple of the initial loss that ends the test.
_DIVERGED = 5.0


class _Logits(keras.Model):
    """Model that converts the output probabilities of a network to logits."""

    def __init__(self, network: keras.Model, ending: str) -> None:
        super().__init__(name=f"{network.name}_logits")
        self.network, self.ending = network, ending
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return as_logits(self.network(inputs, training=training), self.ending)


def range_test(
    network: keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    optimizer: keras.Optimizer,
    ending: str = "linear",
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 60,
    loss: str = "softmax",
    renewed: Sequence[keras.Variable] = (),
    **settings: Any,
) -> Curve:
    """Trains with an exponentially increasing learning rate, and then restores all variables.

    Every loss is divided by the loss of the same batch before the test, so that few small batches
    are enough.

    Reference: section 3.3 of https://arxiv.org/abs/1506.01186
    """
    growth = (high / low) ** (1 / (steps - 1))
    optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(low, 1, growth)
    variables = network.variables
    initial_values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    model = network if ending == "linear" and labels.shape[1] > 2 else _Logits(network, ending)
    training_model = TrainingModel(ClassificationObjective(model, loss=loss), **settings)
    training_model.compile(optimizer=optimizer, jit_compile=keras.backend.backend() == "jax")
    size = max(len(images) // BATCHES, 1)
    starts = range(0, size * min(BATCHES, len(images)), size)
    batches = [(images[i : i + size], labels[i : i + size]) for i in starts]
    losses: list[float] = []

    def measure(function: Any, batch: tuple[np.ndarray, np.ndarray]) -> float:
        training_model.reset_metrics()  # otherwise the loss is the mean of all batches so far
        return float(function(*batch, return_dict=True)["loss"])

    try:
        for variable in renewed:
            variable.assign(keras.ops.zeros_like(variable))
        initial_losses = [measure(training_model.test_on_batch, batch) for batch in batches]
        # The loss of a step is computed before its update, so one additional step is needed.
        for step in range(steps + 1):
            index = step % len(batches)
            value = measure(training_model.train_on_batch, batches[index])
            ratio = value / max(initial_losses[index], 1e-6)
            losses.append(ratio if np.isfinite(ratio) else np.inf)
            if step and losses[-1] > _DIVERGED:
                break
    finally:
        for variable, value in zip(variables, initial_values, strict=True):
            variable.assign(value)
    curve = np.array(losses[1:])
    return Curve(low * growth ** np.arange(len(curve)), curve)
