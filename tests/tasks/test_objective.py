from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.tasks.objective import Objective


class WithMetric(Objective):
    def __init__(self, network: keras.Model) -> None:
        super().__init__(network)
        self.scale = self.add_weight(name="scale", shape=(), trainable=True)
        self.error = keras.metrics.Mean("error")


def test_state_has_no_metrics() -> None:
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    objective = WithMetric(network)
    assert [id(v) for v in objective.state] == [id(objective.scale), *map(id, network.variables)]
    assert objective.scores == []


def test_losses_are_those_of_a_subclass() -> None:
    objective = Objective(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]))
    with pytest.raises(NotImplementedError):
        objective.example_losses(np.ones((1, 2)), None, training=True)
