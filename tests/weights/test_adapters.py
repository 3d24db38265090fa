from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from keras_vit import models, weights
from keras_vit.models.lora import enable_lora, merged_weights
from keras_vit.training.param_groups import set_trainable
from keras_vit.weights.adapters import save_adapter
from tests.helpers import normal, tiny_config


def test_adapters_are_loaded_into_the_model_that_a_run_started_from(tmp_path: Path) -> None:
    start = models.build(tiny_config())
    model = models.rebuild(start)
    enable_lora(model, 3)
    set_trainable(model, ("head/*",))
    for index, variable in enumerate(model.trainable_variables):
        variable.assign(normal(*variable.shape, seed=index) * 0.1)
    save_adapter(model, tmp_path / "adapter.npz")
    weights.load_adapter(start, tmp_path / "adapter.npz")
    for found, expected in zip(start.get_weights(), merged_weights(model), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    for changes in ({"classes": 9}, {"mlp_dim": 23}):
        with pytest.raises(ValueError, match="must be the adapter of a model of this architecture"):
            weights.load_adapter(models.build(tiny_config(**changes)), tmp_path / "adapter.npz")
