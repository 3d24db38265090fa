"""Exponential moving average (EMA) of the weights, and validation with the averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np


def averages(optimizer: keras.Optimizer) -> list[keras.Variable] | None:
    """Returns the averaged weights stored in an optimizer, or None if EMA is not used."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return inner._model_variables_moving_average if inner.use_ema else None


def momentum(step: Any, limit: float, warms_up: bool) -> Any:
    """Returns the momentum of the averages after a number of steps, at most `limit`."""
    step = keras.ops.cast(step, "float32")
    value = keras.ops.convert_to_tensor(float(limit), "float32")
    if warms_up:
        value = keras.ops.minimum(value, (1 + step) / (10 + step))
    return keras.ops.where(step > 0, value, 0.0)  # the first step sets the average


def update(
    averages: Sequence[keras.Variable], variables: Sequence[keras.Variable], momentum: Any
) -> None:
    """Updates the averages of variables after a training step."""
    for variable, average in zip(variables, averages, strict=True):
        m = keras.ops.cast(momentum, variable.dtype)
        average.assign(m * average + (1 - m) * variable)


def assign(variables: Sequence[keras.Variable], values: Sequence[Any]) -> None:
    """Assigns arrays or the values of other variables to variables, in the same order."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(keras.ops.convert_to_numpy(value))


class EvaluateAverages(keras.callbacks.Callback):
    """Keras callback that validates with the averaged weights, then restores the current ones.

    On TensorFlow, Keras' `SwapEMAWeights` swaps by addition and subtraction, after which the
    weights are not bit-identical.
    """

    _weights: list[np.ndarray] | None = None

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        averaged_weights = averages(self.model.optimizer)
        if averaged_weights is not None:
            variables = self.model.trainable_variables
            self._weights = [keras.ops.convert_to_numpy(v) for v in variables]
            assign(variables, averaged_weights)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._weights is not None:
            assign(self.model.trainable_variables, self._weights)
            self._weights = None
