"""A few updates of a tiny classifier, on one device or on several, to be compared."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import models
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training import Recipe
from keras_vit.training.distribution import Devices
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.training_model import TrainingModel
from tests.helpers import in_training, numpy

BATCH, CLASSES, STEPS = 12, 5, 20
CLASSIFIER = partial(in_training, ClassificationObjective)

# What must lead to the same losses and weights however many replicas share a batch: fields of the
# recipe, settings of the training_model.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({}, {}),
    "adamw": ({"optimizer": "adamw"}, {}),
    "clip-norm": ({}, {"clip_norm": 0.05}),
    "accumulation": ({}, {"accumulation_steps": 3}),
    "ema": ({"ema_momentum": 0.9}, {}),
    "layer-decay": ({"layer_decay": 0.6, "optimizer": "adamw"}, {}),
    "adafactor": ({"optimizer": "adafactor"}, {}),
    "all": (
        {"optimizer": "adamw", "ema_momentum": 0.8},
        {"accumulation_steps": 2, "clip_norm": 0.05},
    ),
}


def recipe_of(case: str) -> Recipe:
    """Returns the recipe of one of the `CASES`."""
    return Recipe(
        **{"optimizer": "sgd", "learning_rate": 0.02, "weight_decay": 0.1} | CASES[case][0]
    )


@dataclasses.dataclass
class Outcome:
    """What some updates lead to: the running loss after each, the last report, the weights."""

    losses: np.ndarray
    history: dict[str, list[float]]
    weights: dict[str, np.ndarray]
    training_model: TrainingModel


def network(**changes: Any) -> keras.Model:
    dtype = changes.pop("dtype", None)
    config = models.size("Micro/4").replace(
        **{"hidden_size": 24, "num_layers": 1, "num_heads": 3, "mlp_dim": 38},
        **{"image_size": (8, 12), "classes": CLASSES, "classifier_activation": None},
        **changes,
    )
    model = models.build(config, dtype=dtype)
    head = model.get_layer("head")  # which is zero, and hides what is in front of it
    kernel = np.random.default_rng(3).normal(0, 0.1, head.kernel.shape)
    head.set_weights([kernel, np.zeros(CLASSES)])
    return model


def examples(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    labels = rng.integers(0, CLASSES, number)
    images = rng.normal(size=(number, 8, 12, 3)) + labels[:, None, None, None] / CLASSES
    return images.astype("float32"), np.eye(CLASSES, dtype="float32")[labels]


def updates(
    where: Devices | None = None,
    recipe: Recipe | None = None,
    *,
    number: int = BATCH * STEPS // 2,
    weights: np.ndarray | None = None,
    make: Callable[..., TrainingModel] = CLASSIFIER,
    precision: str = "float32",
    **settings: Any,
) -> Outcome:
    """Trains for two epochs on `number` examples: 20 updates if it is not given.

    Args:
        where: Devices; None for one.
        recipe: Of the optimizer; by default SGD without warm-up.
        number: Examples; the last batch of an epoch may be short.
        weights: Weight of each example.
        make: Makes the model in training from the network and the settings.
        precision: Keras dtype policy.
        **settings: Of both; rates such as `dropout_rate`, and positions, of the network.
    """
    recipe = recipe or Recipe(optimizer="sgd", learning_rate=0.1, weight_decay=0.01)
    rates = {
        k: settings.pop(k) for k in [*settings] if k.endswith("_rate") or k.startswith("position")
    }
    keras.utils.set_random_seed(7)
    losses: list[float] = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
            losses.append(float((logs or {})["loss"]))

    with where.active() if where else contextlib.nullcontext():
        with where.scope() if where else contextlib.nullcontext():
            model = network(dtype=precision, **rates)
            training_model = make(model, **settings)
            training_model.compile(
                optimizer=build_optimizer(recipe, training_model.objective, STEPS, precision),
                jit_compile=keras.backend.backend() == "jax",
            )
        data = examples(number) if weights is None else (*examples(number), weights)

        def batches(shard: tuple[int, int]) -> tf.data.Dataset:
            worker, workers = shard
            dataset = tf.data.Dataset.from_tensor_slices(data)
            if workers == 1:
                return dataset.batch(BATCH)
            # Each worker has its part of every batch.
            part = dataset.batch(BATCH // workers, drop_remainder=True).shard(workers, worker)
            return part.apply(tf.data.experimental.assert_cardinality(number // BATCH))

        distribute = where.distribute if where else lambda make: make((0, 1))
        history = training_model.fit(
            distribute(batches),
            epochs=2,
            validation_data=distribute(batches),
            callbacks=[Losses()],
            shuffle=False,
            verbose=0,
        )
        found = {v.path: numpy(v) for v in model.weights}
        # What is added to every key alike changes no softmax: this gradient is 0 but for its
        # rounding, and AdamW makes full steps of it.
        for path in [path for path in found if path.endswith("qkv/bias")]:
            query, _, value = np.split(found[path], 3)
            found[path] = np.concatenate([query, value])
    return Outcome(np.array(losses), history.history, found, training_model)


def differences(one: Outcome, other: Outcome) -> tuple[float, float]:
    """Returns the largest difference of a loss and of a weight."""
    losses = float(np.abs(one.losses - other.losses).max())
    weights = max(float(np.abs(w - other.weights[name]).max()) for name, w in one.weights.items())
    return losses, weights


def outcomes(where: Devices | None) -> Iterator[tuple[str, Outcome]]:
    """Yields what each of the `CASES` leads to, and a few more for which equality is not exact."""
    for name, (_, settings) in CASES.items():
        yield name, updates(where, recipe_of(name), **settings)
    # The last worker finds nothing but padding in its part of the last batch.
    number, padded = BATCH * 3 + 5, BATCH * 4
    weights = (np.arange(padded) < number).astype("float32")
    yield "short-last-batch", updates(where, number=padded, weights=weights)
    still = Recipe(optimizer="sgd", learning_rate=0.0)
    rates = {"dropout_rate": 0.2, "stochastic_depth_rate": 0.3}
    yield "dropout", updates(where, still, number=BATCH * 40, **rates)
    for precision in ("mixed_bfloat16", "mixed_float16"):
        yield precision, updates(where, recipe_of("sgd"), precision=precision)
