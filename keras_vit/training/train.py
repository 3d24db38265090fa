"""Recipe to `model.fit`: from a folder of images to a run folder."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import warnings

import keras
import numpy as np

from keras_vit import data, files, models, weights, zoo
from keras_vit.evaluation import Report
from keras_vit.evaluation.evaluate import evaluate
from keras_vit.training.callbacks import SaveRun
from keras_vit.training.machine import best_precision
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.recipe import Recipe
from keras_vit.training.run import Run, RunConfig
from keras_vit.visualization import plots

# How many validation images a run keeps, to try predictions and verify exports with.
_SAMPLES = 16


def train(
    config: RunConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    tensorboard: bool = True,
) -> Report:
    """Trains a model and writes a run folder.

    The folder holds the configuration, the split, the history, `last.keras` and `best.keras`
    after every epoch, the state to resume from, and at the end the evaluation of the last
    epoch's weights on the validation part, as a table and a picture.

    Args:
        config: Data, model and recipe. With `resume` the run's own configuration counts.
        out: The run folder.
        resume: Whether to go on after the last complete epoch of `out`.
        tensorboard: Whether TensorBoard logs are written.

    Returns:
        The evaluation of `last.keras` on the validation examples.

    Raises:
        ValueError: If the data, the configuration or the folder does not allow the run; before
            any work starts.
        KeyboardInterrupt: After saving, if the user stops the run.

    Example:
        >>> recipe = Recipe(epochs=1, batch_size=512)
        >>> config = RunConfig("digits", "ViTMicro4", image_size=(16, 16), recipe=recipe)
        >>> train(config, "runs/digits", tensorboard=False).num_examples  # doctest: +ELLIPSIS
        Checking the images of digits ...
        ...
        359
    """
    run = Run(out)
    if resume:
        config = run.read_config()
        # What "auto" came to when the run was started, wherever it goes on.
        recipe = config.recipe.replace(precision=run.resolved()["precision"])
        config = dataclasses.replace(config, recipe=recipe)
    elif run.config.exists():
        raise ValueError(
            f"`out` must be a new folder. Received: out={str(out)!r}, which holds a run. Choose "
            "another one, or go on with it with `resume=True` (--resume)."
        )
    zoo.constructor(config.model)
    recipe = config.recipe
    keras.utils.set_random_seed(recipe.seed)
    examples = data.load(config.data)
    # Before the images are looked at, which takes a while: a wrong size or weight file shows here.
    model = _training_model(config, examples.class_names)
    training, validation = _parts(config, examples, run, resume)
    contract = models.preprocessing_of(model)
    flip = recipe.flip and examples.flip_safe
    steps = data.steps_per_epoch(training, recipe.batch_size)
    model.compile(
        optimizer=build_optimizer(recipe, model, steps * recipe.epochs),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=recipe.label_smoothing
        ),
        # Not "accuracy": what the first step has to build has its graph traced twice.
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
        # XLA takes 4% off a step of a ViT-Ti/16 on a CPU, a third off that of a tiny model
        # (benchmarks/results/); but tf.distribute strategies do not run with it.
        jit_compile=False,
    )
    save = SaveRun(run)
    save.set_model(model)
    if resume:
        save.restore()
    else:
        resolved = {
            "precision": precision_of(recipe),
            "flip": flip,
            "training_examples": len(training),
            "validation_examples": len(validation),
            "classes": len(examples.class_names),
            "preprocessing": contract.get_config(),
        }
        run.write_config(config, resolved)
        _write_samples(run, validation)
    if save.epochs_done == recipe.epochs:
        print(f"All {recipe.epochs} epochs are done; what is left is the evaluation.")
        return _finish(run, validation)
    print(
        f"Training {config.model} on {len(training)} images of {len(examples.class_names)} "
        f"classes, {len(validation)} held out, in {precision_of(recipe)}; epochs: {recipe.epochs}, "
        f"full batches in each: {steps}."
    )
    try:
        model.fit(
            data.training_dataset(
                training,
                contract,
                batch_size=recipe.batch_size,
                epochs=recipe.epochs,
                seed=recipe.seed,
                initial_epoch=save.epochs_done,
                crop_area=recipe.crop_area,
                flip=flip,
            ),
            epochs=recipe.epochs,
            initial_epoch=save.epochs_done,
            steps_per_epoch=steps,
            validation_data=data.evaluation_dataset(
                validation, contract, batch_size=recipe.batch_size
            ),
            callbacks=_callbacks(run, save, resume, tensorboard),
            shuffle=False,  # the data set has its own order
            verbose=1 if sys.stdout.isatty() else 2,
        )
    except KeyboardInterrupt:
        if not run.last.is_file():
            save.save_last()
        raise
    return _finish(run, validation)


def _parts(
    config: RunConfig, examples: data.Examples, run: Run, resume: bool
) -> tuple[data.Examples, data.Examples]:
    """Returns the usable examples to train on, and those to validate on."""
    labels = "\n".join(examples.class_names) + "\n"
    if resume and run.labels.read_text(encoding="utf-8") != labels:
        raise ValueError(
            f"The classes of {config.data} must be those of {run.labels}. Restore them, or start a "
            f"new run. Received: the classes {', '.join(examples.class_names[:20])}"
        )
    print(f"Checking the images of {config.data} ...")
    found = data.audit(examples)
    examples = found.accept(examples, config.on_bad_image)
    if found.text():
        print(found.text())
    data.require_trainable(examples)
    if resume:
        training, validation = data.read_split(run.split, examples)
    else:
        training, validation = data.split(
            examples,
            found.digests,
            validation_fraction=config.validation_fraction,
            seed=config.split_seed,
        )
        data.write_split(run.split, examples, training, validation)
        with files.atomic_path(run.labels) as temporary:
            temporary.write_text(labels, encoding="utf-8")
    return examples.subset(training), examples.subset(validation)


def _training_model(config: RunConfig, class_names: tuple[str, ...]) -> keras.Model:
    """Returns the model to train: logits, at the precision of training."""
    recipe = config.recipe
    checkpoint = None
    if config.weights:
        checkpoint = weights.read_checkpoint(config.weights, config.model)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        model = zoo.constructor(config.model)(
            weights=checkpoint,
            input_shape=(*config.image_size, 3) if config.image_size else None,
            classes=len(class_names),
            classifier_activation=None,
            dropout_rate=recipe.dropout_rate,
            stochastic_depth_rate=recipe.stochastic_depth_rate,
        )
    for note in notes:
        print(f"Note: {note.message}")
    contract = models.preprocessing_of(model)
    if contract.labels not in (None, class_names):
        print("Note: the classifier starts from zeros: the weights have it for other classes.")
        for head in (
            layer for layer in model.layers if layer.name in ("head", "distillation_head")
        ):
            head.set_weights([np.zeros_like(weight) for weight in head.get_weights()])
    contract = dataclasses.replace(contract, labels=class_names)
    return models.rebuild(model, dtype=precision_of(recipe), preprocessing=contract)


def precision_of(recipe: Recipe) -> str:
    """Returns the Keras dtype policy that a recipe trains in on this machine.

    Args:
        recipe: The recipe.

    Returns:
        The name of the policy.

    Example:
        >>> precision_of(Recipe(precision="mixed_bfloat16"))
        'mixed_bfloat16'
    """
    return best_precision() if recipe.precision == "auto" else recipe.precision


def _callbacks(
    run: Run, save: SaveRun, resume: bool, tensorboard: bool
) -> list[keras.callbacks.Callback]:
    callbacks = [save, keras.callbacks.CSVLogger(run.history, append=resume)]
    if tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(run.tensorboard, write_graph=False))
    return callbacks


def _write_samples(run: Run, validation: data.Examples) -> None:
    """Keeps a few validation images as they are, evenly spread over the classes' order."""
    run.samples.mkdir(parents=True, exist_ok=True)
    order = np.argsort(validation.labels, kind="stable")
    spread = np.linspace(0, len(order) - 1, min(_SAMPLES, len(order))).round().astype(int)
    for index in order[np.unique(spread)]:
        label, name = validation.class_names[validation.labels[index]], validation.names[index]
        name = name if name.startswith(f"{label}/") else f"{label}_{name}"
        name = re.sub(r"[^\w.-]", "_", name)
        (run.samples / name).write_bytes(validation.read(int(index)))


def _finish(run: Run, validation: data.Examples) -> Report:
    """Evaluates the last epoch's weights as they were saved, and says where everything is."""
    report = evaluate(keras.saving.load_model(run.last), validation, verbose=0)
    report.write_json(run.evaluation)
    plots.confusion_matrix(report, run.confusion_matrix)
    plots.training_curves(run.history, run.curves)
    print(f"\nThe last epoch's weights on the {len(validation)} images held out:\n")
    print(report.text())
    print(
        f"\n{run.path} holds last.keras, best.keras, evaluation.json, confusion_matrix.png and "
        f"curves.png. Next:\n  keras-vit predict {run.path} {run.samples}/*\n"
        f"  keras-vit export {run.path} --saved-model {run.path}/saved_model "
        f"--tflite {run.path}/model.tflite"
    )
    return report
