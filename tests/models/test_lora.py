"""Low-rank adaptation: merged models equal adapted ones."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.lora import enable_lora
from keras_vit.training.param_groups import set_trainable
from tests.helpers import normal, numpy, tiny_config


def adapted(**changes: object) -> keras.Model:
    """A model with low-rank updates that are not zero."""
    model = models.build(tiny_config(**changes))
    enable_lora(model, 3)
    set_trainable(model, ("head/*",))
    for index, variable in enumerate(model.trainable_variables):
        variable.assign(normal(*variable.shape, seed=index) * 0.1)
    return model


@pytest.mark.parametrize(
    "changes",
    [pytest.param({}, marks=pytest.mark.slow), {"swiglu": True, "mlp_norm": True}],
    ids=str,
)
def test_merged_models_equal_adapted_ones(changes: dict[str, object], tmp_path: Path) -> None:
    model = adapted(**changes)
    images = normal(4, 15, 14, 3)
    expected = numpy(model(images))
    copies = [
        models.rebuild(model),
        models.with_preprocessing(model, models.preprocessing_of(model)),
    ]
    for copy in copies:
        assert len(copy.weights) == len(models.build(tiny_config(**changes)).weights)
        np.testing.assert_allclose(numpy(copy(images)), expected, atol=1e-6)  # measured: 2e-7
    copies[0].save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(copies[0](images)))


def test_an_adapted_classifier_is_merged_in_copies() -> None:
    model = adapted()
    head = model.get_layer("head")
    head.enable_lora(2)
    head.lora_kernel_b.assign(0.1 * normal(2, 11))
    copy = models.with_preprocessing(model, models.preprocessing_of(model))
    assert len(copy.weights) == len(models.build(tiny_config()).weights)
    images = normal(4, 15, 14, 3)
    expected = numpy(model(images))
    assert np.abs(expected - numpy(adapted()(images))).max() > 1e-3
    np.testing.assert_allclose(numpy(copy(images)), expected, atol=1e-5)


def test_only_factors_and_chosen_weights_are_trained() -> None:
    model = models.build(tiny_config())
    enable_lora(model, 3, ["*/qkv"])
    set_trainable(model, ("head/*",))
    found = {variable.path.rpartition("/")[2] for variable in model.trainable_variables}
    assert found == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    frozen = [v.path for v in model.non_trainable_variables]
    assert "block_00/attention/qkv/kernel" in frozen
    set_trainable(model, ("*",))
    assert "block_00/attention/qkv/kernel" not in {v.path for v in model.trainable_variables}
    assert "block_00/attention/out/kernel" in {v.path for v in model.trainable_variables}
    with pytest.raises(ValueError, match="must match a dense layer of a block"):
        enable_lora(models.build(tiny_config()), 3, ["*/nothing"])
