"""Two devices train a segmentation as one does."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.data.masks import IGNORED
from keras_vit.tasks.segmentation.objective import SegmentationObjective
from keras_vit.training.distribution import devices
from tests.helpers import in_training
from tests.training import replicas

TOLERANCE = 1e-5  # largest seen: 5e-7, on JAX 4e-6; with Dice 3e-7


def network(**changes: Any) -> keras.Model:
    config = models.size("Micro/4").replace(
        **{"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 38, "classes": 0},
        **{"image_size": (8, 12), "pooling": "none"},
    )
    whole = models.Segmenter(models.build(config, dtype=changes["dtype"]), 3, width=8)
    return keras.Model(whole.input, whole.get_layer("head").output)


def examples(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    masks = rng.integers(0, 3, (number, 8, 12)).astype(np.uint8)
    images = rng.normal(size=(number, 8, 12, 3)) + masks[..., None]
    masks[:, 0, : number % 7 + 2] = IGNORED
    masks[0] = IGNORED  # no pixel has a class
    return images.astype("float32"), masks


@pytest.mark.slow
def test_two_replicas_segment_as_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "network", network)
    monkeypatch.setattr(replicas, "examples", examples)
    two = devices("jax" if keras.backend.backend() == "jax" else "mirrored")
    make = partial(in_training, partial(SegmentationObjective, dice=True))
    one, other = (replicas.updates(where, make=make) for where in (None, two))
    assert one.history["loss"][1] < one.history["loss"][0]
    losses, weights = replicas.differences(one, other)
    print(losses, weights)
    assert losses < TOLERANCE
    assert weights < TOLERANCE
    for name, values in one.history.items():
        assert other.history[name] == pytest.approx(values, abs=TOLERANCE), name
