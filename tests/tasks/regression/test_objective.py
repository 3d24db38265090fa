from __future__ import annotations

import keras
import numpy as np

from keras_vit.tasks.regression.objective import UNITS, RegressionObjective
from tests.helpers import numpy


def test_losses_are_in_standard_deviations() -> None:
    inputs = keras.Input((2,))
    units = keras.layers.Rescaling([2.0, 10.0], [5.0, 0.0], name=UNITS)
    objective = RegressionObjective(keras.Model(inputs, units(inputs)))
    x, y = np.zeros((3, 2), "float32"), np.array([[5, 0], [7, 0], [5, -20]], "float32")
    losses, outputs = objective.example_losses(x, y, training=True)
    np.testing.assert_allclose(numpy(losses), [0, 0.5, 2])
    objective.update_scores(y, outputs, np.array([1, 1, 0], "float32"))
    np.testing.assert_allclose(float(objective.scores[0].result()), 0.25)
