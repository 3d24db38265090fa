"""A tiny encoder, images for it, and a few updates of it without labels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import models
from keras_vit.tasks.objective import Objective
from keras_vit.training import Recipe
from keras_vit.training.distribution import Devices
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.training_model import TrainingModel
from tests.helpers import randomise

# P, Q = 4, 2; a grid of 3 x 5, so N = 15; F = 24; two tokens in front.
H, W, PATCHES, VALUES, WIDTH, PREFIX = 12, 10, 15, 24, 18, 2


def network(dtype: Any = None, **changes: Any) -> keras.Model:
    config = models.size("Micro/4").replace(
        **{"hidden_size": WIDTH, "num_layers": 2, "num_heads": 3, "mlp_dim": 37},
        **{"patch_size": (4, 2), "image_size": (H, W), "classes": 0, "register_tokens": 1},
    )
    return models.build(config.replace(**changes), dtype=dtype)


def random_network(**changes: Any) -> keras.Model:
    """One whose every weight matters."""
    return randomise(network(**changes))


def images(number: int, seed: int = 11) -> np.ndarray:
    """Waves, of which each part tells all the others."""
    phase = np.random.default_rng(seed).uniform(0, 6, (number, 1, 1, 3))
    row, column = np.linspace(0, 3, H)[:, None, None], np.linspace(0, 4, W)[:, None]
    return np.sin(phase + row - column).astype("float32")


def colors(number: int, seed: int = 13) -> np.ndarray:
    """Images of one of eight colors each, which is soon learnt."""
    values = np.random.default_rng(seed).choice([-0.7, 0.7], (number, 1, 1, 3))
    return np.broadcast_to(values, (number, H, W, 3)).astype("float32")


def updates(
    make: Callable[[keras.Model], Objective],
    where: Devices | None = None,
    *,
    x: np.ndarray | None = None,
    epochs: int = 1,
    learning_rate: float = 0.0,
    validates: bool = False,
    **settings: Any,
) -> tuple[dict[str, list[float]], Objective]:
    """Trains on batches of 12; returns what every epoch reported, and the objective.

    The network has one block: tracing takes longer than the steps.
    """
    keras.utils.set_random_seed(7)
    recipe = Recipe(learning_rate=learning_rate, warmup_fraction=0.0, decay="constant")
    with where.active() if where else contextlib.nullcontext():
        with where.scope() if where else contextlib.nullcontext():
            objective = make(network(num_layers=1))
            training_model = TrainingModel(objective, **settings)
            training_model.compile(
                optimizer=build_optimizer(recipe, objective, 100),
                jit_compile=keras.backend.backend() == "jax",
            )
        x = images(12) if x is None else x
        labels = np.zeros((len(x), 1), "float32")  # as the pipeline's; nobody looks at them
        dataset = tf.data.Dataset.from_tensor_slices((x, labels)).batch(12)
        history = training_model.fit(
            dataset,
            epochs=epochs,
            validation_data=dataset if validates else None,
            shuffle=False,
            verbose=0,
        )
    return history.history, objective
