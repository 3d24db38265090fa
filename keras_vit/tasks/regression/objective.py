"""Loss and metric of regression.

Letters: B batch; D targets.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.tasks.objective import Objective

UNITS = "units"  # layer that converts standardized outputs to the units of the targets


class RegressionObjective(Objective):
    """Mean squared error, and mean absolute error, in standard deviations of the targets."""

    def __init__(self, network: keras.Model) -> None:
        super().__init__(network, mean="mae")
        self.deviations = np.array(network.get_layer(UNITS).scale, "float32")

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        values = ops.cast(self.network(x, training=training), "float32")  # (B, D)
        errors = (values - y) / self.deviations
        return ops.mean(errors**2, axis=-1), ops.mean(ops.abs(errors), axis=-1)
