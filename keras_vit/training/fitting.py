"""Calling `fit` for what is left of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import keras

from keras_vit import data
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.averaging import EvaluateAverages
from keras_vit.training.distribution import Devices
from keras_vit.training.progress import ProgressBar
from keras_vit.training.recipe import Recipe
from keras_vit.training.saving import SaveRun
from keras_vit.training.trainee import Trainee


def fit_remaining(
    trainee: Trainee,
    save: SaveRun,
    recipe: Recipe,
    where: Devices,
    parts: tuple[data.Examples, data.Examples],
    contract: Preprocessing,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Trains the rest of an epoch that was interrupted, then whole epochs.

    Args:
        trainee: The model in training, compiled.
        save: Knows how far the run has come, and saves it.
        recipe: Its `epochs`, `batch_size`, `augmentation` and `seed`.
        where: The devices.
        parts: Examples to train on, and to validate on.
        contract: The pixel contract.
        callbacks: What else watches the training.
    """
    training, validation = parts
    several = where.replicas > 1

    def validation_data() -> object:
        return where.distribute(
            lambda shard: data.evaluation_dataset(
                validation, contract, batch_size=recipe.batch_size, pad=several, shard=shard
            )
        )

    while save.progress.epoch < recipe.epochs:
        progress = save.progress
        until = progress.epoch + 1 if progress.step else recipe.epochs
        dataset = where.distribute(
            lambda shard: data.training_dataset(
                training,
                contract,
                recipe.augmentation,
                batch_size=recipe.batch_size,
                epochs=until,  # noqa: B023
                seed=recipe.seed,
                initial_epoch=progress.epoch,  # noqa: B023
                initial_step=progress.step,  # noqa: B023
                shard=shard,
            )
        )
        bar = ProgressBar(
            epochs=recipe.epochs,
            steps=save.steps,
            batch_size=recipe.batch_size,
            epoch=progress.epoch,
            step=progress.step,
        )
        bars = [bar] if where.is_chief else []
        with contextlib.closing(bar):
            trainee.fit(
                dataset,
                epochs=until,
                initial_epoch=progress.epoch,
                steps_per_epoch=save.steps - progress.step,
                validation_data=validation_data(),
                callbacks=[EvaluateAverages(), save, *callbacks, *bars],
                shuffle=False,  # the data set has its own order
                verbose=0,
            )
