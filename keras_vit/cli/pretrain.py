"""`keras-vit pretrain`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import output_folder
from keras_vit.cli.backend import prefer_jax_on_tpu
from keras_vit.cli.options import (
    IMAGES,
    NUMBERS,
    FractionOption,
    LearningRateOption,
    ModelOption,
    ModelSizeOption,
    OnBadImageOption,
    OutOption,
    PrecisionOption,
    ResumeOption,
    SaveMinutesOption,
    SaveStepsOption,
    SeedOption,
    SplitSeedOption,
    StrategyOption,
    WeightsOption,
    check_data,
    check_out,
    check_resume,
    check_weights,
    config_settings,
    recipe_settings,
)
from keras_vit.cli.train import stoppable
from keras_vit.startup import start_keras


class Method(enum.StrEnum):
    """The ways to learn without labels."""

    mae = "mae"
    masked_patches = "masked-patches"


_DATA_HELP = (
    "Images: a folder of them, however they are sorted into folders, or what `keras-vit train` "
    "takes. Labels are not looked at."
)


# Settings of an autoencoder, which `--set` takes beside the numbers of the recipe.
_OF_DECODER = ("norm_pix", "decoder_width", "decoder_depth", "decoder_heads")


def pretrain(
    context: typer.Context,
    data: Annotated[str | None, typer.Option(help=_DATA_HELP, rich_help_panel=IMAGES)] = None,
    model: ModelOption = "ViTTi16",
    weights: WeightsOption = None,
    image_size: ModelSizeOption = None,
    validation_fraction: FractionOption = None,
    split_seed: SplitSeedOption = None,
    on_bad_image: OnBadImageOption = None,
    method: Annotated[
        Method,
        typer.Option(
            help="mae: the encoder sees a quarter of each image, and a decoder completes it. "
            "masked-patches: it tells the mean colour of patches that were hidden (the ViT "
            "paper's way).",
            rich_help_panel=NUMBERS,
        ),
    ] = Method.mae,
    mask_ratio: Annotated[
        float | None,
        typer.Option(
            help="Share of the patches to hide: 0.75 (mae) or 0.5 (masked-patches).",
            rich_help_panel=NUMBERS,
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="photographs, or a paper's: see `keras-vit recipes`.", rich_help_panel=NUMBERS
        ),
    ] = "photographs",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any number of the recipe, as in --set weight_decay=0.1; may be repeated. Also "
            "norm_pix, decoder_width, decoder_depth and decoder_heads of mae.",
            rich_help_panel=NUMBERS,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the images: 100.", rich_help_panel=NUMBERS)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Images in an update, on all devices together: 64.", rich_help_panel=NUMBERS
        ),
    ] = None,
    learning_rate: LearningRateOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = None,
    strategy: StrategyOption = None,
    out: OutOption = Path("runs/pretrained"),
    resume: ResumeOption = False,
    save_minutes: SaveMinutesOption = None,
    save_steps: SaveStepsOption = None,
) -> None:
    """Train a model on images without labels, to start from with few labelled ones.

    Of use where labels are rare: pre-train on all images, then let `keras-vit train --weights
    RUN/last.keras` learn from those with labels. Published weights, where they fit, are the
    better start. A run can be stopped at any moment, and goes on with --resume as if it had not
    been.

    keras-vit pretrain --data photos/ --model ViTTi16 --image-size 96 --out runs/pretrained

    keras-vit train --data labelled/ --model ViTTi16 --weights runs/pretrained/last.keras
    """
    if resume:
        check_resume(context, out)
    elif data is None:
        raise ValueError(f"`--data` must name images. {_DATA_HELP} Received: none")
    check_data(data)
    check_weights("--weights", weights)
    check_out("--out", out)
    if not resume:
        output_folder.require_new_run(out)
    settings = recipe_settings(context)
    of_decoder = {name: settings.pop(name) for name in _OF_DECODER if name in settings}
    prefer_jax_on_tpu(strategy, out / "config.yaml" if resume else None)
    start_keras()
    from keras_vit import training

    changes = {"data": "", "model": model, **config_settings(context, training.PretrainConfig)}
    numbers = training.pretraining_recipe(recipe).replace(**settings)
    config = training.PretrainConfig(recipe=numbers, **changes, **of_decoder)
    with stoppable(out, "pretrain"):
        training.pretrain(config, out, resume=resume)
