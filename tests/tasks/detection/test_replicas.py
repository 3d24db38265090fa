"""Two devices train a detector as one does."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.detector import detector_logits
from keras_vit.tasks.detection.objective import DetectionObjective
from keras_vit.training import Recipe
from keras_vit.training.distribution import devices
from tests.helpers import in_training
from tests.training import replicas

TOLERANCE = 1e-5  # largest seen: 1e-6


def network(**changes: Any) -> keras.Model:
    config = models.size("Micro/4").replace(
        **{"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 38, "classes": 0},
        **{"image_size": (32, 32), "patch_size": (8, 8), "pooling": "none"},
    )
    return detector_logits(models.build(config), 2, width=8, dtype=changes["dtype"])


def examples(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    images = rng.normal(size=(number, 32, 32, 3)).astype("float32")
    objects = np.full((number, 3, 6), -1, "float32")
    for image, rows in zip(images, objects, strict=True):
        for row in rows[: rng.integers(0, 4)]:
            # Not integers, with which several cells fit an object equally well.
            first = rng.uniform(0, 16, 2)
            row[:] = [*first, *(first + rng.uniform(6, 16, 2)), rng.integers(2), 0]
            top, left, bottom, right = row[:4].astype(int)
            image[top:bottom, left:right] += 1 + row[4]
    return images, objects


@pytest.mark.slow
def test_two_replicas_detect_as_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "network", network)
    monkeypatch.setattr(replicas, "examples", examples)
    two = devices("jax" if keras.backend.backend() == "jax" else "mirrored")
    make = partial(in_training, DetectionObjective)
    recipe = Recipe(optimizer="sgd", learning_rate=0.001, weight_decay=0.01)
    one, other = (replicas.updates(where, recipe, make=make) for where in (None, two))
    assert one.history["loss"][1] < one.history["loss"][0]
    losses, weights = replicas.differences(one, other)
    print(losses, weights)
    assert losses < TOLERANCE
    assert weights < TOLERANCE
    for name, values in one.history.items():
        assert other.history[name] == pytest.approx(values, rel=TOLERANCE, abs=TOLERANCE), name
