"""Runs with low-rank adaptation: two devices train as one, and a stopped run resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import training, weights, zoo
from keras_vit.models.lora import enable_lora
from keras_vit.training.distribution import devices
from keras_vit.training.param_groups import set_trainable
from tests.training import replicas
from tests.training.conftest import StopAt, Train


@pytest.mark.slow
def test_two_replicas_train_low_rank_updates_as_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = replicas.network

    def network(**changes: Any) -> keras.Model:
        model = plain(**changes)
        enable_lora(model, 3)
        set_trainable(model, ("head/*",))
        return model

    monkeypatch.setattr(replicas, "network", network)
    two = devices("jax" if keras.backend.backend() == "jax" else "mirrored")
    losses, changes = replicas.differences(*map(replicas.updates, (None, two)))
    print(losses, changes)
    assert losses < 1e-5
    assert changes < 1e-5


@pytest.mark.slow
@pytest.mark.tensorflow
def test_run_resumes_to_the_bit_and_writes_its_adapter(
    photos: Path, nano: str, train: Train, tmp_path: Path
) -> None:
    recipe = training.recipe("lora").replace(
        **{"epochs": 3, "batch_size": 8, "image_size": (8, 8), "lora_rank": 3, "ema_momentum": 0.9}
    )
    start = zoo.CONSTRUCTORS[nano](weights=None, classes=3, input_shape=(8, 8, 3))
    start.save(tmp_path / "start.keras")
    config = training.RunConfig(
        str(photos), nano, weights=str(tmp_path / "start.keras"), recipe=recipe
    )
    whole, parted = training.Run(tmp_path / "whole"), training.Run(tmp_path / "parted")
    train(config, whole.path)
    with pytest.raises(KeyboardInterrupt):
        train(config, parted.path, also=(StopAt(1, 1),))
    train(config, parted.path, resume=True)
    ends = [run.model().get_weights() for run in (whole, parted)]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
    weights.load_adapter(start, whole.path / "adapter.npz")
    for one, other in zip(ends[0], start.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
