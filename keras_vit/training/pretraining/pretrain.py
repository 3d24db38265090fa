"""Pre-training without labels: from any folder of images to an encoder."""

from __future__ import annotations

import dataclasses
import os

import keras
import numpy as np

from keras_vit import arguments, data, models, output_folder, zoo
from keras_vit.data.sources.load import load_images
from keras_vit.data.splits import split_images
from keras_vit.runs.config import CommonConfig, read_config_of
from keras_vit.runs.pretraining_recipes import PHOTOGRAPHS
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.masked_autoencoder.objective import MaskedAutoencoderObjective, reconstructions
from keras_vit.tasks.masked_patches.objective import MaskedPatchesObjective
from keras_vit.tasks.objective import Objective
from keras_vit.training import param_groups
from keras_vit.training.build import build_encoder, precision_of, set_reading
from keras_vit.training.distribution import devices
from keras_vit.training.ema import averages
from keras_vit.training.loop import build_training_model, fit_remaining, save_as_configured
from keras_vit.training.parts import find_parts
from keras_vit.training.precision import report_unused_accelerator
from keras_vit.training.signals import Interruption
from keras_vit.training.training_model import TrainingModel
from keras_vit.visualization import plots

# Each method with the share of patches that its paper masks.
METHODS = {"mae": 0.75, "masked-patches": 0.5}

# Fields of a recipe that say what to do with labels.
_OF_LABELS = ("loss", "label_smoothing", "class_weights", "distillation")
_PICTURES = 8  # images in reconstruction.png


@dataclasses.dataclass(frozen=True)
class PretrainConfig(CommonConfig):
    """What a run without labels is asked for.

    Args:
        data: Images, with or without labels, see `keras_vit.data.sources.load.load_images`.
        model: Name of a constructor, such as `"ViTTi16"`.
        method: `"mae"`, masked auto-encoding, see `MaskedAutoencoderObjective`; or
            `"masked-patches"`, see `MaskedPatchesObjective`.
        mask_ratio: Share of the patches that are masked, in (0, 1); by default 0.75 and 0.5.
        norm_pix: Whether an autoencoder predicts a patch relative to its own mean and standard
            deviation.
        decoder_width: Channels of an autoencoder's decoder, a multiple of 4 and of
            `decoder_heads`.
        decoder_depth: Blocks of that decoder.
        decoder_heads: Heads of each of them.
        **kwargs: The other fields of `CommonConfig`.

    Raises:
        ValueError: If a value is out of range.

    Example:
        >>> PretrainConfig("photos/", "ViTTi16").masked
        0.75
    """

    recipe: Recipe = PHOTOGRAPHS
    method: str = "mae"
    mask_ratio: float | None = None
    norm_pix: bool = True
    decoder_width: int = 128
    decoder_depth: int = 4
    decoder_heads: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.one_of("method", self.method, tuple(METHODS))
        for name in ("decoder_width", "decoder_depth", "decoder_heads"):
            arguments.positive_int(name, getattr(self, name))
        if not 0 < self.masked < 1:
            raise ValueError(
                f"`mask_ratio` must be in (0, 1). Received: mask_ratio={self.mask_ratio}"
            )
        usual = Recipe()
        for name in _OF_LABELS:
            if getattr(self.recipe, name) != getattr(usual, name):
                raise ValueError(
                    "`recipe` must say nothing of labels, which pre-training does not look at. "
                    f"Received: {name}={getattr(self.recipe, name)!r}"
                )

    @property
    def masked(self) -> float:
        """The share of the patches that are masked."""
        return METHODS[self.method] if self.mask_ratio is None else self.mask_ratio


def pretrain(
    config: PretrainConfig, out: str | os.PathLike[str], *, resume: bool = False
) -> dict[str, float] | None:
    """Trains a model without labels and writes a run folder.

    The folder holds the configuration, the split, the history and its curves, the states to
    resume from and `last.keras`: the encoder without a classifier, which the constructors'
    `weights` and `keras-vit train --weights` start from. A masked autoencoder also leaves
    `reconstruction.png`, some held-out images completed by it.

    Args:
        config: Images, model, method and recipe. With `resume` the run's own one counts.
        out: The run folder.
        resume: Whether to go on where `out` was saved last.

    Returns:
        What the last epoch reported, such as `loss` and `val_loss`; None on workers other than
        the chief.

    Raises:
        ValueError: If the images, the configuration or the folder do not allow the run; before
            any work starts.
        FloatingPointError: If the loss becomes no number; the last good state stays.
        KeyboardInterrupt: After saving, if the user stops the run.
        SystemExit: After saving, on SIGTERM.

    Example:
        >>> recipe = PHOTOGRAPHS.replace(epochs=1, batch_size=512, image_size=(16, 16))
        >>> config = PretrainConfig("digits", "ViTMicro4", decoder_depth=1, recipe=recipe)
        >>> sorted(pretrain(config, "runs/digits"))  # doctest: +ELLIPSIS
        Checking the images of digits ...
        ...
        ['epoch', 'gradient_norm', 'loss', 'val_loss']
    """
    run = Run(out)
    if resume:
        config = _read_config(run)
    else:
        output_folder.require_new_run(run.path)
    zoo.constructor(config.model)
    recipe = config.recipe
    keras.utils.set_random_seed(recipe.seed)
    where = devices(config.strategy)
    report_unused_accelerator(config.strategy)
    where.check(recipe)
    with run.writing("pretrain", resume=resume, writes=where.is_chief):
        examples = load_images(config.data)
        with where.active():
            # Before the images are audited, which takes a while: a wrong size or weight file shows
            # here.
            with where.scope():
                objective = _objective(config)
                param_groups.set_trainable(objective.network, recipe.trainable)
            set_reading(objective.network, run, resume=resume)
            training, validation, inventory = find_parts(
                config, examples, run, resume=resume, writes=where.is_chief, split=split_images
            )
            steps = data.steps_per_epoch(training, recipe.batch_size)
            with where.scope():
                # With the decoder or the predictor, which learn as well.
                training_model = build_training_model(objective, objective, config, steps)
            preprocessing = models.preprocessing_of(objective.network)
            with Interruption() as interruption:
                save = save_as_configured(
                    config,
                    run,
                    training_model,
                    where,
                    steps=steps,
                    interruption=interruption,
                    command="pretrain",
                )
                if resume:
                    save.restore()
                elif where.is_chief:
                    resolved = {
                        "precision": precision_of(config),
                        "devices": where.name,
                        "mask_ratio": config.masked,
                        "training_examples": len(training),
                        "validation_examples": len(validation),
                        "inventory": dataclasses.asdict(inventory),
                        "preprocessing": preprocessing.get_config(),
                    }
                    run.write_config(config, resolved)
                if save.progress.epoch < recipe.epochs:
                    print(
                        f"Pre-training {config.model} ({config.method}) on {len(training)} images, "
                        f"{len(validation)} held out, in {precision_of(config)} on {where.name}; "
                        f"epochs: {recipe.epochs}, full batches in each: {steps}."
                    )
                parts = (training, validation)
                fit_remaining(
                    training_model,
                    save,
                    recipe,
                    where,
                    parts,
                    preprocessing,
                    (),
                    config.on_bad_image,
                )
            if not where.is_chief:
                return None
            _finish(config, run, training_model, validation)
            return save.progress.history[-1]


def _read_config(run: Run) -> PretrainConfig:
    """Reads the configuration of a run, with what "auto" came to when it was started."""
    try:
        config = read_config_of(PretrainConfig, run.config)
    except ValueError as error:
        raise ValueError(
            "`--resume` needs a folder that `keras-vit pretrain --out` has written. "
            f"Received: out={str(run.path)!r}: {error}"
        ) from error
    recipe = config.recipe.replace(precision=run.resolved()["precision"])
    return dataclasses.replace(config, recipe=recipe)


def _objective(config: PretrainConfig) -> Objective:
    """Returns the objective, at the precision of training."""
    network = build_encoder(config)
    if config.method == "masked-patches":
        return MaskedPatchesObjective(network, mask_ratio=config.masked)
    return MaskedAutoencoderObjective(
        network,
        mask_ratio=config.masked,
        norm_pix=config.norm_pix,
        decoder_width=config.decoder_width,
        decoder_depth=config.decoder_depth,
        decoder_heads=config.decoder_heads,
    )


def _finish(
    config: PretrainConfig, run: Run, training_model: TrainingModel, validation: data.Examples
) -> None:
    """Draws what there is to see, and says where everything is."""
    pictures = "curves.png"
    if isinstance(training_model.objective, MaskedAutoencoderObjective):
        average = averages(training_model.optimizer)  # which is what last.keras holds
        if average is not None:
            for variable, value in zip(training_model.trainable_variables, average, strict=True):
                variable.assign(keras.ops.convert_to_numpy(value))
        chosen = np.linspace(0, len(validation) - 1, min(_PICTURES, len(validation)))
        preprocessing = models.preprocessing_of(training_model.network)
        some = validation.subset(np.unique(chosen.round().astype(int)))
        batches = data.evaluation_dataset(some, preprocessing, batch_size=len(some))
        images, _ = next(iter(batches))
        original, masked, completed = (
            preprocessing.to_rgb(preprocessing.unscale(found))
            for found in reconstructions(training_model.objective, images.numpy())
        )
        path = run.path / "reconstruction.png"
        plots.reconstruction_sheet(original, masked, completed, path)
        pictures = "curves.png and reconstruction.png"
    plots.training_curves(run.history, run.curves)  # last: what makes the run complete
    command = arguments.command(
        *("train", "--data", "LABELLED", "--model", config.model, "--weights", run.last),
        *("--out", run.path.with_name(f"{run.path.name}_trained")),
    )
    print(f"\n{run.path} holds last.keras, the encoder, and {pictures}. Next:\n  {command}")
