"""Training loop, which turns a run's configuration into a complete run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import data, files, models, output_folder, tasks
from keras_vit.data.geometry import cut_off
from keras_vit.data.image_audit import AUDITED_FIRST, say_notes
from keras_vit.data.inventory import Inventory
from keras_vit.data.training_pipeline import check_augmentation
from keras_vit.escapes import say
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import CommonConfig, Config, PretrainConfig, RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import complete_preprocessing
from keras_vit.tasks.task import Result, Task
from keras_vit.training import distribution, param_groups
from keras_vit.training.background_audit import BackgroundAudit
from keras_vit.training.ema import EvaluateAverages, assign, averages
from keras_vit.training.precision import precision_of, report_unused_accelerator
from keras_vit.training.progress import EpochClock, ProgressBar, TensorBoard, log_pictures
from keras_vit.training.run_state import RunState
from keras_vit.training.save_schedule import SaveSchedule
from keras_vit.training.signals import SignalHandler
from keras_vit.training.training_model import build_training_model
from keras_vit.visualization.training_curves import training_curves


def fit_run(
    config: RunConfig | PretrainConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    tensorboard: bool = True,
    profile: tuple[int, int] | None = None,
    smaller_batches: bool = False,
    least_steps: int = 0,
    few_images: Mapping[str, Any] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Any:
    """Trains a model and writes all results into a run folder.

    The folder contains the configuration, the split, the history with times, `last.keras` and
    `best.keras` after every epoch, the states to resume from, and at the end the evaluation of the
    last epoch's weights on the validation set, as a table and a picture.

    `keras_vit.tasks` defines the images and targets, network, objective and evaluation of a task.

    Args:
        config: Task, data, model, recipe and devices. With `resume`, the configuration in the run
            folder is used.
        out: The run folder.
        resume: Whether to resume from the last state in `out`.
        tensorboard: Whether to write TensorBoard logs.
        profile: First and last step to profile for TensorBoard, counted from 1.
        smaller_batches: Whether to reduce a batch size above the number of training images.
        least_steps: Minimum number of training steps, for which the number of epochs is increased.
        few_images: Further fields of the recipe to change where the number of epochs is increased.
        callbacks: Callbacks for `fit`, called after the state of the run is saved, only on the
            chief. A run resumed within an epoch calls `fit` twice, and the steps of its first
            epoch are counted from the interruption.

    Returns:
        The evaluation of `last.keras` on the validation set, or, for a task without evaluation,
        the metrics of the last epoch. None on workers other than the chief.

    Raises:
        ValueError: If the data, the configuration or the folder is invalid; raised before training
            starts.
        FloatingPointError: If the loss is not finite; the last good state is kept.
        KeyboardInterrupt: After saving, on SIGINT (Ctrl-C).
        SystemExit: After saving, on SIGTERM.

    Examples:
        >>> from keras_vit.runs.recipe import Recipe
        >>> recipe = Recipe(epochs=1, batch_size=512, image_size=(16, 16))
        >>> config = RunConfig("digits", "ViTMicro4", recipe=recipe)
        >>> fit_run(config, "runs/digits", tensorboard=False).num_examples  # doctest: +ELLIPSIS
        Checking the images of digits ...
        ...
        359
    """
    run = RunFolder(out)
    if resume:
        config = _resumed_config(run, config)
    else:
        output_folder.require_new_run(run.path)
    task_class = tasks.get(config.task)
    task_class.check_model(config.model)
    keras.utils.set_random_seed(config.recipe.seed)
    devices = distribution.devices(config.strategy, getattr(config, "model_parallel", 1))
    report_unused_accelerator(config.strategy)
    devices.check(config.recipe)
    with run.writing(task_class.command, resume=resume, writes=devices.is_chief):
        logs = [TensorBoard(str(run.tensorboard), profile)] if tensorboard else []
        other_callbacks = [EpochClock(run.times), *logs, *callbacks] if devices.is_chief else []
        examples = task_class.load(config.data)
        task = task_class.settled(config, examples)
        check_augmentation(task.config.recipe.augmentation, examples.kind)
        config, precision = task.config, precision_of(task.config)
        with devices.active():
            # Before the audit of the images, which takes a while, to detect a wrong size or weight
            # file early.
            with devices.scope():
                network = task.build_network(examples, precision, resume=resume)
                param_groups.set_trainable(network, config.recipe.trainable)
            task_name = None if task.unnamed else task.name
            complete_preprocessing(network, run, task_name, config.recipe.resize, resume=resume)
            if resume:
                task.check_resumed(run, examples)
            training, validation, inventory = find_parts(
                config,
                examples,
                run,
                models.preprocessing_of(network) if task.monitor else None,
                resume=resume,
                writes=devices.is_chief,
                split=task.split,
            )
            if smaller_batches and not resume:
                config = task.config = _with_full_batch(config, len(training), devices)
            steps = data.steps_per_epoch(training, config.recipe.batch_size)
            if steps * config.recipe.epochs < least_steps and not resume:
                changes = {"epochs": math.ceil(least_steps / steps), **(few_images or {})}
                recipe = config.recipe.replace(**changes)
                pairs = ((n, value, getattr(config.recipe, n)) for n, value in changes.items())
                texts = [f"{name} {new} instead of {old}" for name, new, old in pairs]
                print(f"For few images: {', '.join(texts)}.")
                config = task.config = dataclasses.replace(config, recipe=recipe)
            with devices.scope():
                objective = task.objective(network, training)
                training_model = build_training_model(objective, config, steps)
                if resume and _is_from_earlier_version(run):
                    optimizer: Any = training_model.optimizer
                    getattr(optimizer, "inner_optimizer", optimizer).warms_up_average = False
            with SignalHandler() as interruption:
                state = RunState(run, training_model, task, devices, steps)
                if resume:
                    state.restore()
                elif devices.is_chief:
                    task.start_run(run, examples, validation)
                    resolved = {
                        "precision": precision,
                        "devices": devices.name,
                        **task.resolved(examples),
                        "training_examples": len(training),
                        "validation_examples": len(validation),
                        "inventory": dataclasses.asdict(inventory),
                        "preprocessing": models.preprocessing_of(network).get_config(),
                    }
                    run.write_config(config, resolved)  # last: marks the folder as a run
                if state.progress.epoch < config.recipe.epochs:
                    print(
                        f"{task.title(examples, len(training))}, {len(validation)} held out, in "
                        f"{precision} on {devices.name}; epochs: {config.recipe.epochs}, steps per "
                        f"epoch: {steps}."
                    )
                    task.advise(steps * config.recipe.epochs)
                if not state.progress.epoch and not state.progress.step:
                    task.fit_head(network, training)
                saving = SaveSchedule(state, interruption)
                with contextlib.ExitStack() as background:
                    if len(examples) > AUDITED_FIRST and devices.is_chief:
                        background.enter_context(BackgroundAudit(examples))
                    parts = training, validation
                    validation = fit_remaining(state, parts, [saving, *other_callbacks])
            if not devices.is_chief:
                return None
            average = averages(training_model.optimizer)  # the weights in last.keras
            unaveraged = None
            if average is not None:
                unaveraged = task.inference_model(training_model.network)
                assign(objective.trainable_variables, average)
            pictures = task.draw_training(run, objective, validation)
        result = _finish(task, run, validation, pictures, unaveraged)
        return state.progress.history[-1] if result is None else result


def _resumed_config(run: RunFolder, config: RunConfig | PretrainConfig) -> Any:
    """Reads the configuration of a run to resume, with the precision that it was started in."""
    config = run.read_config(type(config), tasks.get(config.task).command)
    if _is_from_earlier_version(run):
        print(
            "Note: an earlier version began this run: images much wider or higher than the "
            "model's input are now cropped in training, not squashed."
        )
    recipe = config.recipe.replace(precision=run.resolved()["precision"])
    return dataclasses.replace(config, recipe=recipe)


def _is_from_earlier_version(run: RunFolder) -> bool:
    return "resize" not in run.as_written().get("recipe", {})


def _with_full_batch(config: Config, images: int, devices: distribution.Devices) -> Config:
    """Reduces the batch size in a configuration if there are fewer images than one batch."""
    recipe = config.recipe
    parts = devices.replicas * recipe.accumulation_steps * (2 if recipe.augmentation.mixes else 1)
    if images >= recipe.batch_size or images < parts:
        return config
    size = images // parts * parts
    print(f"Batch size {size} instead of {recipe.batch_size}: only {images} images.")
    return dataclasses.replace(config, recipe=recipe.replace(batch_size=size))


def find_parts(
    config: CommonConfig,
    examples: data.Examples,
    run: RunFolder,
    preprocessing: Preprocessing | None = None,
    *,
    resume: bool,
    writes: bool,
    split: Callable[..., tuple[np.ndarray, np.ndarray]] = data.split,
) -> tuple[data.Examples, data.Examples, Inventory]:
    """Checks a run's images, unless they are too many; returns both sets and an inventory."""
    digests, near_duplicates = None, ()  # type: Any, Any
    inventory = Inventory(len(examples), ignored=examples.ignored)
    if len(examples) > AUDITED_FIRST:
        say_notes(examples)
    else:
        examples, audit = data.usable_images(examples, config.on_bad_image)
        digests, near_duplicates = audit.digests, audit.twins
        inventory = audit.inventory
        if preprocessing and (text := cut_off(audit.sizes, preprocessing)):
            say(text)
    if resume:
        training, validation = data.read_split(
            run.split, examples, digests=digests, on_missing=config.on_bad_image
        )
    else:
        training, validation = split(
            examples,
            digests,
            near_duplicates,
            validation_fraction=config.validation_fraction,
            seed=config.split_seed,
            group_by=config.group_by,
            folds=getattr(config, "folds", 0),
            fold=getattr(config, "fold", 0),
        )
        if writes:
            data.write_split(run.split, examples, training, validation, digests)
    return examples.subset(training), examples.subset(validation), inventory


def fit_remaining(
    state: RunState,
    parts: tuple[data.Examples, data.Examples],
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> data.Examples:
    """Trains the remaining steps of an interrupted epoch, and then all remaining epochs.

    A run of 0 epochs is evaluated and saved as it is. Returns the validation images, without those
    that can no longer be read.
    """
    training, validation = parts
    training_model, devices = state.training_model, state.devices
    recipe, on_bad_image = state.task.config.recipe, state.task.config.on_bad_image
    preprocessing = models.preprocessing_of(training_model.network)
    multi_replica = devices.replicas > 1
    initial = state.progress
    if (initial.epoch or initial.step) and initial.epoch < recipe.epochs and devices.is_chief:
        print(f"Resuming after epoch {initial.epoch} and {initial.step} steps of the next epoch.")
    if recipe.augmentation.layers and devices.is_chief:
        print(
            "Note: the random state of augmentation layers cannot be saved, so a resumed run "
            "draws different random numbers and is not bit-identical."
        )

    def batches(make: Callable[..., Any], part: data.Examples, *args: Any, **options: Any) -> Any:
        size = recipe.batch_size
        return devices.distribute(
            lambda shard: make(part, preprocessing, *args, batch_size=size, shard=shard, **options)
        )

    def validated(*callbacks: keras.callbacks.Callback) -> dict[str, float]:
        metrics = training_model.evaluate(
            batches(data.evaluation_dataset, validation, pad=multi_replica),
            steps=-(-len(validation) // recipe.batch_size),
            callbacks=callbacks,
            verbose=0,
            return_dict=True,
        )
        return {f"val_{name}": value for name, value in metrics.items()}

    averaging = EvaluateAverages()
    if not recipe.epochs and not initial.epoch:
        state.end_epoch(validated())
    while state.progress.epoch < recipe.epochs and not state.stopped_early:
        progress = state.progress
        final_epoch = progress.epoch + 1 if progress.step else recipe.epochs
        try:
            if progress.step == state.steps:  # an image of the validation could not be read
                metrics = {**state.logs, **validated(averaging)}
                for callback in callbacks:
                    callback.on_epoch_end(progress.epoch, metrics)
                continue
            dataset = batches(
                data.training_dataset,
                training,
                recipe.augmentation,
                epochs=final_epoch,
                seed=recipe.seed,
                balanced=recipe.sampling == "balanced",
                initial_epoch=progress.epoch,
                initial_step=progress.step,
            )
            bar = ProgressBar(recipe, progress)
            bars = [bar] if devices.is_chief else []
            with contextlib.closing(bar):
                training_model.fit(
                    dataset,
                    epochs=final_epoch,
                    initial_epoch=progress.epoch,
                    steps_per_epoch=state.steps - progress.step,
                    validation_data=batches(data.evaluation_dataset, validation, pad=multi_replica),
                    callbacks=[averaging, *callbacks, *bars],
                    shuffle=False,  # the dataset has its own order
                    verbose=0,
                )
        except data.UNREADABLE as error:
            averaging.on_test_end()
            single_worker = devices.workers == 1  # other workers wait for this worker's batches
            on_error = on_bad_image if single_worker else "fail"
            readable = [data.readable_images(p, on_error) for p in parts]
            steps = data.steps_per_epoch(readable[0], recipe.batch_size)
            if [len(p) for p in readable] == [len(p) for p in parts]:
                raise
            if steps < state.steps or not len(readable[1]):
                raise ValueError(
                    f"`data` must keep images for {state.steps} steps per epoch, and images to "
                    f"validate on. Received: {steps} steps, {len(readable[1])} to validate on"
                ) from error
            parts = training, validation = readable[0], readable[1]
        if training_model.stop_training:
            break
    if state.stopped_early and devices.is_chief:
        print(
            f"Stopped early, after epoch {state.progress.epoch}: the validation result has not "
            f"improved for {recipe.early_stopping} epochs."
        )
    return validation


def _finish(
    task: Task,
    run: RunFolder,
    validation: data.Examples,
    pictures: dict[str, Path],
    unaveraged: keras.Model | None,
) -> Result | None:
    """Evaluates the weights saved after the last epoch, and prints which files were written.

    If these are averages, `unaveraged` contains the weights without averaging.
    """
    result = None
    names = ["last.keras"]
    if task.has_scores():
        verbose = int(sys.stdout.isatty())  # no progress bars in log files
        evaluation = task.evaluate_run(run, validation, verbose=verbose)
        result = evaluation.result
        inventory = run.resolved().get("inventory")  # absent from runs of earlier versions
        content = {**result.to_json(), "inventory": inventory}
        if unaveraged is not None:
            unaveraged_result = task.evaluate(unaveraged, validation, verbose=verbose).result
            content["without_averaging"] = unaveraged_result.to_json()
        files.write_json(run.evaluation, content)
        pictures |= task.draw(result, run.path)
        pictures |= task.draw_examples(validation, evaluation, run.path)
        names += ["best.keras"] * run.best.exists() + [run.evaluation.name]
    training_curves(run.history, run.curves)  # last: marks the run as complete
    pictures["curves"] = run.curves
    if run.tensorboard.is_dir():
        log_pictures(run.tensorboard / "evaluation", pictures)
    if result is not None:
        print(f"\nResults of the last epoch's weights on the {len(validation)} held-out images:\n")
        say(result.text())
        if unaveraged is not None:
            print("\nResults of the weights without averaging (`ema_momentum=0`):\n")
            say(unaveraged_result.text())
    names += [path.name for path in pictures.values()]
    commands = "\n  ".join(task.next_commands(run))
    print(f"\n{run.path} contains {', '.join(names[:-1])} and {names[-1]}. Next:\n  {commands}")
    return result
