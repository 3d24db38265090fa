"""Command `keras-vit compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.cli import options as opt
from keras_vit.cli.backend import prefer_jax_on_tpu
from keras_vit.cli.train import stoppable
from keras_vit.escapes import say
from keras_vit.startup import start_keras


def compare(
    context: typer.Context,
    models: Annotated[
        str,
        opt.image_option(
            "Models to compare: constructors (`keras-vit models`), keras.applications models "
            "such as ResNet50, or run folders (not trained again).",
            metavar="NAME,NAME",
        ),
    ],
    data: Annotated[str, opt.image_option(opt.DATA_HELP, callback=opt.check_data)],
    weights: Annotated[
        list[str] | None,
        opt.image_option(
            "Initial weights of a model: a name, file or URL; `imagenet` or a file for "
            "keras.applications. Random weights without it. May be repeated.",
            metavar="NAME=WEIGHTS",
        ),
    ] = None,
    image_size: opt.SizeOption = None,
    validation_fraction: opt.FractionOption = None,
    split_seed: opt.SplitSeedOption = None,
    on_bad_image: opt.BadImageOption = "fail",
    task: opt.TaskOption = "classification",
    recipe: opt.RecipeOption = None,
    set_: opt.SetOption = None,
    epochs: opt.EpochsOption = None,
    batch_size: opt.BatchSizeOption = None,
    learning_rate: opt.LearningRateOption = None,
    precision: opt.PrecisionOption = None,
    seed: opt.SeedOption = None,
    strategy: opt.StrategyOption = None,
    out: Annotated[Path, opt.run_option("Output folder.")] = Path("comparison"),
) -> None:
    """Train models on the same data split with the same recipe; compare accuracy and cost.

    Prints accuracy, F1 of each class, parameters, operations, speed, memory and minutes, and a
    paired significance test. The same command resumes a comparison.

    keras-vit compare --models ViTTi16,ResNet50 --data photos --weights ViTTi16=imagenet
    """
    initial_weights = _weights(weights)
    names = [name.strip() for name in models.split(",") if name.strip()]
    for name in names:
        if "/" in name:
            opt.check_exists("--models", Path(name), "constructors or run folders")
    opt.check_out("--out", out, ("comparison.md", "comparison.json", "curves.png"))
    settings = opt.recipe_settings(context)
    # This process only reads images; the training processes need the GPU memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    prefer_jax_on_tpu(strategy)
    start_keras()
    from keras_vit import reports, tasks, training

    # The model and its weights are replaced for each model.
    changes = opt.config_settings(context, training.RunConfig) | {"model": "", "weights": None}
    recipe = recipe or tasks.get(task).recipe
    config = training.RunConfig(recipe=training.recipe(recipe).replace(**settings), **changes)
    print(
        f"Each model is trained with the recipe {recipe} (--recipe) for {config.recipe.epochs} "
        "epochs; keras.applications models are trained without layer-wise decay.\n",
        flush=True,
    )
    with stoppable(out):
        report = reports.compare(config, names, out, start=initial_weights)
    say(f"\n{report.markdown()}")
    print(f"Written: {out}/comparison.md, comparison.json and curves.png")


def _weights(items: list[str] | None) -> dict[str, str]:
    weights = {}
    for item in items or []:
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise ValueError(f"`--weights` must be NAME=WEIGHTS. Received: --weights {item}")
        opt.check_weights("--weights", value)
        weights[name.strip()] = opt.absolute(value) or value
    return weights
