"""Exponential moving average (EMA) of the weights, and validation with the averages."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def averages(optimizer: keras.Optimizer) -> list[keras.Variable] | None:
    """Returns the averaged weights stored in an optimizer, or None if EMA is not used."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return inner._model_variables_moving_average if inner.use_ema else None


class EvaluateAverages(keras.callbacks.Callback):
    """Keras callback that validates with the averaged weights, then restores the current ones.

    On TensorFlow, Keras' `SwapEMAWeights` swaps by addition and subtraction, after which the
    weights are not bit-identical.
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: list[np.ndarray] | None = None

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        found = averages(self.model.optimizer)
        if found is None:
            return
        variables = self.model.trainable_variables
        self._weights = [keras.ops.convert_to_numpy(v) for v in variables]
        for variable, average in zip(variables, found, strict=True):
            variable.assign(keras.ops.convert_to_numpy(average))

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._weights is None:
            return
        for variable, value in zip(self.model.trainable_variables, self._weights, strict=True):
            variable.assign(value)
        self._weights = None
