"""Command `keras-vit compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.cli import options as opt
from keras_vit.cli.backend import prefer_jax_on_tpu
from keras_vit.cli.train import stoppable
from keras_vit.startup import start_keras


def compare(
    context: typer.Context,
    models: Annotated[
        str,
        opt.of_images(
            "Constructors (`keras-vit models`), networks of keras.applications such as "
            "ResNet50, and run folders, which are not trained again.",
            metavar="NAME,NAME",
        ),
    ],
    data: Annotated[str, opt.of_images(opt.DATA_HELP)],
    weights: Annotated[
        list[str] | None,
        opt.of_images(
            "What a model starts from: a name, file or URL; without it random weights. For "
            "networks of keras.applications imagenet or a file. May be repeated.",
            metavar="NAME=WEIGHTS",
        ),
    ] = None,
    image_size: opt.ModelSizeOption = None,
    validation_fraction: opt.FractionOption = None,
    split_seed: opt.SplitSeedOption = None,
    on_bad_image: opt.OnBadImageOption = None,
    recipe: Annotated[str, opt.of_recipe("Of all models; see `keras-vit recipes`.")] = "finetune",
    set_: opt.SetOption = None,
    epochs: opt.EpochsOption = None,
    batch_size: Annotated[int | None, opt.of_recipe("Images in a step.")] = None,
    learning_rate: opt.LearningRateOption = None,
    precision: opt.PrecisionOption = None,
    seed: opt.SeedOption = None,
    strategy: opt.StrategyOption = None,
    out: Annotated[Path, opt.of_run("Folder to write.")] = Path("comparison"),
) -> None:
    """Train models on the same split with the same recipe, and compare what they reach and cost.

    Prints accuracy, F1 of each class, parameters, operations, speed, memory and minutes, and a
    paired test whether the difference is real. The same command resumes a comparison.

    keras-vit compare --models ViTTi16,ResNet50 --data photos --weights ViTTi16=imagenet
    """
    opt.check_data(data)
    start = _weights(weights)
    names = [name.strip() for name in models.split(",") if name.strip()]
    for name in names:
        if "/" in name:
            opt.check_exists("--models", Path(name), "constructors, networks and run folders")
    opt.check_out("--out", out, ("comparison.md", "comparison.json", "curves.png"))
    numbers = opt.recipe_settings(context)
    # This process only reads images; the training processes need the GPU memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    prefer_jax_on_tpu(strategy)
    start_keras()
    from keras_vit import reports, training

    own = {"model": "", "weights": None}  # replaced for each model
    changes = opt.config_settings(context, training.RunConfig) | own
    config = training.RunConfig(recipe=training.recipe(recipe).replace(**numbers), **changes)
    print(
        f"Each is trained by the recipe {recipe} (--recipe), {config.recipe.epochs} epochs; "
        "networks of keras.applications without layer-wise decay.\n",
        flush=True,
    )
    with stoppable(out):
        found = reports.compare(config, names, out, start=start)
    print(f"\n{found.markdown()}")
    print(f"Written: {out}/comparison.md, comparison.json and curves.png")


def _weights(given: list[str] | None) -> dict[str, str]:
    read = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise ValueError(
                f"`--weights` must read like ViTTi16=imagenet. Received: --weights {item}"
            )
        opt.check_weights("--weights", value)
        read[name.strip()] = opt.absolute(value) or value
    return read
