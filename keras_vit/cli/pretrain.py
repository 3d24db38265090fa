"""`keras-vit pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keras_vit import choices, output_folder
from keras_vit.cli import options as opt
from keras_vit.cli.backend import prefer_jax_on_tpu
from keras_vit.cli.train import stoppable
from keras_vit.startup import start_keras

_DATA_HELP = (
    "Images: a folder of them, however they are sorted into folders, or what `keras-vit train` "
    "takes. Labels are not looked at."
)
# Settings of an autoencoder, which `--set` takes beside the numbers of the recipe.
_OF_DECODER = ("norm_pix", "decoder_width", "decoder_depth", "decoder_heads")


def pretrain(
    context: typer.Context,
    data: Annotated[str | None, opt.of_images(_DATA_HELP)] = None,
    model: Annotated[str, opt.of_images("Constructor; see `keras-vit models`.")] = "ViTTi16",
    weights: opt.WeightsOption = None,
    image_size: opt.ModelSizeOption = None,
    validation_fraction: opt.FractionOption = None,
    split_seed: opt.SplitSeedOption = None,
    on_bad_image: opt.OnBadImageOption = None,
    method: Annotated[
        choices.Method,
        opt.of_recipe(
            "mae: the encoder sees a quarter of each image, and a decoder completes it. "
            "masked-patches: it tells the mean colour of patches that were hidden (the ViT "
            "paper's way)."
        ),
    ] = "mae",
    mask_ratio: Annotated[
        float | None,
        opt.of_recipe("Share of the patches to hide: 0.75 (mae) or 0.5 (masked-patches)."),
    ] = None,
    recipe: Annotated[
        str, opt.of_recipe("photographs, or a paper's: see `keras-vit recipes`.")
    ] = "photographs",
    set_: Annotated[
        list[str] | None,
        opt.of_recipe(
            "Any number of the recipe, as in --set weight_decay=0.1; may be repeated. Also "
            "norm_pix, decoder_width, decoder_depth and decoder_heads of mae.",
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None,
    epochs: Annotated[int | None, opt.of_recipe("Passes over the images: 100.")] = None,
    batch_size: Annotated[
        int | None, opt.of_recipe("Images in an update, on all devices together: 64.")
    ] = None,
    learning_rate: opt.LearningRateOption = None,
    precision: opt.PrecisionOption = None,
    seed: opt.SeedOption = None,
    strategy: opt.StrategyOption = None,
    out: opt.OutOption = Path("runs/pretrained"),
    resume: opt.ResumeOption = False,
    save_minutes: opt.SaveMinutesOption = None,
    save_steps: opt.SaveStepsOption = None,
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
        opt.check_resume(context, out)
    elif data is None:
        raise ValueError(f"`--data` must name images. {_DATA_HELP} Received: none")
    opt.check_data(data)
    opt.check_weights("--weights", weights)
    opt.check_out("--out", out)
    if not resume:
        output_folder.require_new_run(out)
    settings = opt.recipe_settings(context)
    of_decoder = {name: settings.pop(name) for name in _OF_DECODER if name in settings}
    prefer_jax_on_tpu(strategy, out / "config.yaml" if resume else None)
    start_keras()
    from keras_vit import training

    changes = {"data": "", "model": model, **opt.config_settings(context, training.PretrainConfig)}
    numbers = training.pretraining_recipe(recipe).replace(**settings)
    config = training.PretrainConfig(recipe=numbers, **changes, **of_decoder)
    with stoppable(out, "pretrain"):
        training.pretrain(config, out, resume=resume)
