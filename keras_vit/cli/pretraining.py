"""`keras-vit pretrain`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

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
    absolute,
    check_data,
    check_exists,
    check_resume_alone,
    check_weights,
    parse_size,
    read_settings,
)
from keras_vit.cli.training import stoppable
from keras_vit_toolkit import start_keras


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
        check_resume_alone(context)
        check_exists("--out", out, "the folder of the run to go on with")
    elif data is None:
        raise ValueError(f"`--data` must name images. {_DATA_HELP} Received: none")
    check_data(data)
    check_weights("--weights", weights)
    settings = read_settings(
        set_,
        image_size=parse_size(image_size),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        precision=precision and precision.value,
        seed=seed,
    )
    changes: dict[str, Any] = {
        "mask_ratio": mask_ratio,
        "validation_fraction": validation_fraction,
        "split_seed": split_seed,
        "strategy": strategy and strategy.value,
        "on_bad_image": on_bad_image and on_bad_image.value,
        "save_minutes": save_minutes,
        "save_steps": save_steps,
        **{name: settings.pop(name, None) for name in _OF_DECODER},
    }
    prefer_jax_on_tpu(strategy, out / "config.yaml" if resume else None)
    start_keras()
    from keras_vit import training

    config = training.PretrainConfig(
        # Absolute, so that the run can be resumed from any folder.
        data=absolute(data) or "",
        model=model,
        method=method.value,
        weights=absolute(weights),
        recipe=training.pretraining_recipe(recipe).replace(**settings),
        **{name: value for name, value in changes.items() if value is not None},
    )
    with stoppable():
        training.pretrain(config, out, resume=resume)
