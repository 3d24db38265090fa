"""Commands `keras-vit train`, `keras-vit pretrain` and `keras-vit recipes`."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import arguments, choices, output_folder
from keras_vit.cli import options as opt
from keras_vit.cli.backend import prefer_jax_on_tpu
from keras_vit.constants import FEW_STEPS
from keras_vit.startup import start_keras

_IMAGES_HELP = (
    "A folder of images, with or without subfolders, or any data that `keras-vit train` accepts. "
    "Labels are ignored."
)
# Settings of an autoencoder that `--set` accepts besides the recipe's fields.
_DECODER_SETTINGS = ("norm_pix", "decoder_width", "decoder_depth", "decoder_heads")


def train(
    context: typer.Context,
    data: opt.DataOption = None,
    model: Annotated[
        str,
        opt.image_option("Model constructor (`keras-vit models`), or a keras.applications model."),
    ] = "ViTTi16",
    weights: opt.WeightsOption = None,
    image_size: opt.SizeOption = None,
    validation_fraction: opt.FractionOption = None,
    split_seed: opt.SplitSeedOption = None,
    group_by: Annotated[
        str | None,
        opt.image_option(
            "Column of the table, such as patient or camera, whose images are all held out or all "
            "trained on."
        ),
    ] = None,
    on_bad_image: opt.BadImageOption = "fail",
    on_bad_box: Annotated[
        choices.OnBadBox,
        opt.image_option(
            "Boxes without area, outside of the image, not finite or of unknown classes: list and "
            "drop them, or stop."
        ),
    ] = "drop",
    task: opt.TaskOption = "classification",
    recipe: Annotated[
        str | None,
        opt.recipe_option(
            "Recipe (`keras-vit recipes`). Default: that of the task, finetune for classes; with "
            "--weights none from_scratch."
        ),
    ] = None,
    set_: opt.SetOption = None,
    epochs: opt.EpochsOption = None,
    batch_size: opt.BatchSizeOption = None,
    learning_rate: opt.LearningRateOption = None,
    optimizer: opt.OptimizerOption = None,
    teacher: Annotated[
        Path | None, opt.recipe_option("Teacher for distillation: a run folder or .keras file.")
    ] = None,
    precision: opt.PrecisionOption = None,
    seed: opt.SeedOption = None,
    strategy: opt.StrategyOption = None,
    model_parallel: opt.ParallelOption = None,
    out: opt.OutOption = Path("runs/run"),
    folds: Annotated[
        int | None,
        opt.run_option(
            "Cross-validation: a run for each fold, and the mean and spread of their scores.", min=2
        ),
    ] = None,
    config: Annotated[
        Path | None, opt.run_option("Configuration file: config.yaml of a run, or your own.")
    ] = None,
    resume: opt.ResumeOption = False,
    save_minutes: opt.SaveMinutesOption = None,
    save_steps: opt.SaveStepsOption = None,
    tensorboard: Annotated[bool, opt.run_option("Write TensorBoard logs.")] = True,
    profile: opt.ProfileOption = None,
) -> None:
    """Fine-tune a model on labeled images, or train it from scratch.

    A model with published weights starts from them, and the defaults fine-tune it in minutes. A
    run can be stopped at any moment, and --resume continues it to the same weights.

    keras-vit train --data photos/ --model ViTB16 --out runs/photos

    keras-vit train --resume --out runs/photos
    """
    settings = _start(context, f"the training images. {opt.DATA_HELP}")
    from keras_vit import tasks, training
    from keras_vit.runs import named_recipes
    from keras_vit.tasks.build import default_weights

    changes, published = opt.config_settings(context, training.RunConfig), None
    if not (config or weights or resume) and recipe in (None, *named_recipes.FROM_WEIGHTS):
        published = changes["weights"] = default_weights(model)
    default_recipe = tasks.get(task).recipe if changes.get("weights") else "from_scratch"
    base = training.RunConfig(data="", model=model, recipe=training.recipe(default_recipe))
    if config is not None:
        base = training.read_config(config)
    if on_bad_box == "fail":
        if (task_name := changes.get("task", base.task)) != "detection":
            raise ValueError(
                "`--on-bad-box` must be drop unless the task is detection. Received: "
                f"--on-bad-box fail with the task {task_name}"
            )
        changes["settings"] = {"on_bad_box": on_bad_box}
    chosen_recipe = training.recipe(recipe) if recipe else base.recipe
    if optimizer == "sgd" and chosen_recipe.optimizer != "sgd":
        chosen_recipe = chosen_recipe.replace(**named_recipes.SGD)
    few_images: dict[str, Any] = {}
    if chosen_recipe == named_recipes.FINETUNE:
        few_images = {n: v for n, v in named_recipes.FEW_IMAGES.items() if n not in settings}
    if published:
        print(f"Starting from published weights: {published} (--weights none for random weights).")
    run_config = dataclasses.replace(base, recipe=chosen_recipe.replace(**settings), **changes)
    cross_validation = run_config.folds or (resume and (out / "fold_1").is_dir())
    try:
        with stoppable(out, "train"):
            (training.train_folds if cross_validation else training.train)(
                run_config,
                out,
                resume=resume,
                tensorboard=tensorboard,
                profile=profile,
                smaller_batches=config is None and "batch_size" not in settings,
                least_steps=0 if config or recipe or "epochs" in settings else FEW_STEPS,
                few_images=few_images,
            )
    except ConnectionError as error:
        hint = "\nOr pass --weights none to train from random weights." if published else ""
        raise RuntimeError(f"{error}{hint}") from error


def pretrain(
    context: typer.Context,
    data: Annotated[str | None, opt.image_option(_IMAGES_HELP, callback=opt.check_data)] = None,
    model: opt.ModelOption = "ViTTi16",
    weights: opt.WeightsOption = None,
    image_size: opt.SizeOption = None,
    validation_fraction: opt.FractionOption = None,
    split_seed: opt.SplitSeedOption = None,
    on_bad_image: opt.BadImageOption = "fail",
    method: Annotated[
        choices.Method,
        opt.recipe_option(
            "mae: masked autoencoder, whose decoder reconstructs the patches hidden from the "
            "encoder. masked-patches: predicts the mean color of masked patches, as in the ViT "
            "paper. mae also has --set norm_pix, decoder_width, decoder_depth and decoder_heads."
        ),
    ] = "mae",
    mask_ratio: Annotated[
        float | None,
        opt.recipe_option("Fraction of masked patches: 0.75 (mae), 0.5 (masked-patches)."),
    ] = None,
    recipe: Annotated[str, opt.recipe_option("Recipe of a paper, or photographs.")] = "photographs",
    set_: opt.SetOption = None,
    epochs: opt.EpochsOption = None,
    batch_size: opt.BatchSizeOption = None,
    learning_rate: opt.LearningRateOption = None,
    precision: opt.PrecisionOption = None,
    seed: opt.SeedOption = None,
    strategy: opt.StrategyOption = None,
    out: opt.OutOption = Path("runs/pretrained"),
    resume: opt.ResumeOption = False,
    save_minutes: opt.SaveMinutesOption = None,
    save_steps: opt.SaveStepsOption = None,
) -> None:
    """Pre-train a model on images without labels, to fine-tune it later on few labeled images.

    Useful where labels are rare: pre-train on all images, then fine-tune with `keras-vit train
    --weights RUN/last.keras` on the labeled ones. Published weights, if suitable, are a better
    start. A run can be stopped at any moment, and --resume continues it to the same weights.

    keras-vit pretrain --data photos/ --model ViTTi16 --image-size 96 --out runs/pretrained

    keras-vit train --data labeled/ --model ViTTi16 --weights runs/pretrained/last.keras
    """
    settings = _start(context, f"images. {_IMAGES_HELP}")
    decoder_settings = {name: settings.pop(name) for name in _DECODER_SETTINGS if name in settings}
    from keras_vit import training

    changes = {"data": "", "model": model, **opt.config_settings(context, training.PretrainConfig)}
    chosen_recipe = training.pretraining_recipe(recipe).replace(**settings)
    config = training.PretrainConfig(recipe=chosen_recipe, **changes, **decoder_settings)
    with stoppable(out, "pretrain"):
        training.pretrain(config, out, resume=resume)


def _start(context: typer.Context, wanted: str) -> dict[str, Any]:
    """Checks options of `train` or `pretrain`, starts Keras, and returns the recipe settings."""
    params = context.params
    out, resume, config = params["out"], params["resume"], params.get("config")
    if resume:
        also_allowed = (name for name in ("tensorboard", "profile") if name in params)
        config = opt.check_resume(context, out, *also_allowed)
    elif params["data"] is None and config is None:
        raise ValueError(f"`--data` must name {wanted} Received: none")
    opt.check_weights("--weights", params["weights"])
    opt.check_exists("--config", config, "a config.yaml")
    opt.check_exists("--teacher", params.get("teacher"), "a run folder or a .keras file")
    opt.check_out("--out", out)
    if not resume:
        output_folder.require_new_run(out)
    settings = opt.recipe_settings(context)
    prefer_jax_on_tpu(params["strategy"], config)
    start_keras()
    return settings


@contextlib.contextmanager
def stoppable(out: Path, resumed_by: str | None = None) -> Iterator[None]:
    """Context manager that prints how to resume after Ctrl-C (status 130) or a foreseen error.

    Such errors are a full disk and the loss of another worker.

    `resumed_by` is the command that has a `--resume` option; None if repeating the command resumes.
    """
    resume_hint = "The same command resumes from the last saved state, or starts again."
    try:
        yield
    except (KeyboardInterrupt, Exception) as stopped:
        disk_full = isinstance(stopped, OSError) and stopped.errno == errno.ENOSPC
        # Of TensorFlow, which is not imported here: another worker ended, or the network did.
        worker_lost = type(stopped).__name__ in ("UnavailableError", "DeadlineExceededError")
        if not (disk_full or worker_lost or isinstance(stopped, KeyboardInterrupt)):
            raise
        if resumed_by and any((out / n / "config.yaml").exists() for n in ("", "fold_1")):
            resume_command = arguments.command(resumed_by, "--resume", "--out", out)
            resume_hint = f"Saved states are kept. Resume with:\n  {resume_command}"
        if worker_lost:
            hint_for_all = resume_hint.replace("Resume with:", "Resume on all machines with:")
            raise RuntimeError(
                f"Another worker ended or cannot be reached. {hint_for_all}"
            ) from stopped
        if disk_full:
            raise RuntimeError(f"{stopped}. Free some space. {resume_hint}") from stopped
        print(f"\n{str(stopped) or f'Interrupted. {resume_hint}'}")
        raise typer.Exit(130) from None


def recipes(
    name: Annotated[str | None, typer.Argument(help="Name of the recipe to show.")] = None,
) -> None:
    """List all recipes with their sources, or print one of them as YAML.

    keras-vit recipes deit
    """
    start_keras()
    import yaml

    from keras_vit import training

    published = {**training.RECIPES, **training.PRETRAINING_RECIPES}
    if name is None:
        print("For `keras-vit train --recipe NAME` (use --set to override a value):\n")
        _list(training.RECIPES)
        print(
            'augreg\n    Pre-training of "How to train your ViT?", also as in '
            "augreg-aug_light1-wd_0.1-do_0.0-sd_0.0\n    https://arxiv.org/abs/2106.10270\n\n"
            "For `keras-vit pretrain --recipe NAME`, without labels:\n"
        )
        _list(training.PRETRAINING_RECIPES)
        return
    if not name.startswith("augreg"):
        arguments.one_of("recipe", name, (*published, "augreg"))
    if named_recipe := published.get(name):
        print("\n".join(f"# {line}" for line in named_recipe[1:] if line))
    values = named_recipe.recipe if named_recipe else training.recipe(name)
    yaml.safe_dump(dataclasses.asdict(values), sys.stdout, sort_keys=False)


def _list(published: dict[str, Any]) -> None:
    for name, named_recipe in published.items():
        print("\n    ".join([name, *filter(None, named_recipe[1:])]))
