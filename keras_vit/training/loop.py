"""What runs with labels and without do alike: compile, save, and call `fit` for what is left."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_vit import data
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import CommonConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.objective import Objective
from keras_vit.training.build import precision_of
from keras_vit.training.distribution import Devices
from keras_vit.training.ema import EvaluateAverages
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.progress import ProgressBar
from keras_vit.training.save_schedule import SaveRun
from keras_vit.training.signals import Interruption
from keras_vit.training.training_model import TrainingModel


def build_training_model(
    objective: Objective, model: keras.layers.Layer, config: CommonConfig, steps: int
) -> TrainingModel:
    """Returns a compiled model that minimizes an objective as a recipe says.

    Args:
        objective: The objective.
        model: The part of it whose weights the optimizer updates.
        config: Its recipe and strategy.
        steps: Steps in an epoch.
    """
    recipe = config.recipe
    training_model = TrainingModel(
        objective,
        accumulation_steps=recipe.accumulation_steps,
        clip_norm=recipe.clip_norm,
        clip_variable_norm=recipe.clip_variable_norm,
        sam_radius=recipe.sam_radius,
    )
    training_model.compile(
        optimizer=build_optimizer(recipe, model, steps * recipe.epochs, precision_of(config)),
        # XLA takes 4% off a step of a ViT-Ti/16 on a CPU, a third off that of a tiny model
        # (benchmarks/results/); but tf.distribute strategies do not run with it.
        jit_compile=keras.backend.backend() == "jax",
    )
    return training_model


def save_as_configured(
    config: CommonConfig,
    run: Run,
    training_model: TrainingModel,
    where: Devices,
    *,
    steps: int,
    interruption: Interruption,
    command: str,
) -> SaveRun:
    """Returns the callback that saves a run as often as its configuration wants.

    Args:
        config: Its `save_steps`, `save_minutes`, `keep` and `recipe.early_stopping`.
        run: The folder.
        training_model: The model in training, compiled.
        where: The devices; only the chief writes.
        steps: Steps in an epoch.
        interruption: Is asked after every step whether to stop.
        command: The command of `keras-vit` that goes on with the run.

    Returns:
        The callback.
    """
    return SaveRun(
        run,
        training_model,
        steps=steps,
        interruption=interruption,
        alone=where.workers == 1,
        save_steps=config.save_steps,
        save_minutes=config.save_minutes,
        keep=config.keep,
        early_stopping=config.recipe.early_stopping,
        writes=where.is_chief,
        command=command,
    )


def fit_remaining(
    training_model: TrainingModel,
    save: SaveRun,
    recipe: Recipe,
    where: Devices,
    parts: tuple[data.Examples, data.Examples],
    preprocessing: Preprocessing,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    on_bad_image: str = "fail",
) -> None:
    """Trains the rest of an epoch that was interrupted, then whole epochs.

    Args:
        training_model: The model in training, compiled.
        save: Knows how far the run has come, and saves it.
        recipe: Its `epochs`, `batch_size`, `augmentation` and `seed`.
        where: The devices.
        parts: Examples to train on, and to validate on.
        preprocessing: The preprocessing.
        callbacks: What else watches the training.
        on_bad_image: What to do if an image has become unreadable since it was checked: `"fail"`
            raises an error that names it, `"skip"` continues without it.

    Raises:
        ValueError: If images have become unreadable and must not or cannot be left out.
    """
    training, validation = parts
    several = where.replicas > 1
    begun = save.progress
    if (begun.epoch or begun.step) and begun.epoch < recipe.epochs and where.is_chief:
        print(f"Going on after epoch {begun.epoch}, step {begun.step} of the next.")
    if recipe.augmentation.layers and where.is_chief:
        print(
            "Note: the random numbers of augmentation layers cannot be saved: a resumed run draws "
            "others, and is not the same to the bit."
        )

    def validation_data() -> object:
        return where.distribute(
            lambda shard: data.evaluation_dataset(
                validation, preprocessing, batch_size=recipe.batch_size, pad=several, shard=shard
            )
        )

    while save.progress.epoch < recipe.epochs and not save.stopped_early:
        progress = save.progress
        until = progress.epoch + 1 if progress.step else recipe.epochs
        dataset = where.distribute(
            lambda shard: data.training_dataset(
                training,  # noqa: B023
                preprocessing,
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
        try:
            with contextlib.closing(bar):
                training_model.fit(
                    dataset,
                    epochs=until,
                    initial_epoch=progress.epoch,
                    steps_per_epoch=save.steps - progress.step,
                    validation_data=validation_data(),
                    callbacks=[EvaluateAverages(), save, *callbacks, *bars],
                    shuffle=False,  # the data set has its own order
                    verbose=0,
                )
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            alone = where.workers == 1  # others wait for this one's batches
            left = [data.readable_images(p, on_bad_image if alone else "fail") for p in parts]
            steps = data.steps_per_epoch(left[0], recipe.batch_size)
            if [len(p) for p in left] == [len(p) for p in parts] or steps < save.steps:
                raise
            parts = training, validation = left[0], left[1]
        if training_model.stop_training:
            break
    if save.stopped_early and where.is_chief:
        print(
            f"Stopped early, after epoch {save.progress.epoch}: no better validation result in "
            f"{recipe.early_stopping} epochs."
        )
