"""Commands `keras-vit data check`, `keras-vit data preview` and `keras-vit data convert`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import arguments
from keras_vit.cli import options as opt
from keras_vit.startup import start_keras

app = typer.Typer(
    help="Look at images before a model does: check, preview; convert.", no_args_is_help=True
)
DataArgument = Annotated[str, opt.argument("DATA", opt.DATA_HELP)]


@app.command()
def check(
    data: DataArgument,
    report: opt.ReportOption = None,
) -> None:
    """Report unreadable files, duplicates, contradicting labels, imbalance and odd images.

    Nothing is changed. Ends with status 1 if training would be refused.

    keras-vit data check photos/
    """
    opt.check_data(data)
    opt.check_out("--report", report, folder=False)
    start_keras()
    from keras_vit import data as sources
    from keras_vit import files

    examples = sources.load(data)
    found = sources.check(examples)
    print(found.text())
    if report:
        files.write_json(report, found.to_json())
        print(f"\nWritten: {report}")
    if found.blocking:
        raise typer.Exit(1)


@app.command()
def preview(
    data: DataArgument,
    out: Annotated[Path, opt.option("The picture to write.")] = Path("preview.png"),
    model: Annotated[str, opt.option("Whose image size counts.")] = "ViTTi16",
    image_size: opt.SizeOption = None,
    recipe: Annotated[str, opt.option("Whose augmentation is shown.")] = "finetune",
    set_: Annotated[
        list[str] | None,
        opt.option("A number of it, as in --set mixup=0.2.", "--set", metavar="NAME=VALUE"),
    ] = None,
    number: Annotated[int, opt.option("How many images.", min=2, max=400)] = 32,
    seed: Annotated[int, opt.option("Of the choice of images and of all changes.")] = 0,
) -> None:
    """Draw what the model will really see in training: cropped, flipped, changed and mixed.

    keras-vit data preview photos/ --recipe deit --out preview.png
    """
    opt.check_data(data)
    opt.check_out("--out", out, folder=False)
    settings, size = opt.read_settings(set_), opt.parse_size(image_size)
    start_keras()
    import tensorflow as tf

    from keras_vit import data as sources
    from keras_vit import models, training, zoo
    from keras_vit.visualization import drawing
    from keras_vit.visualization.contact_sheet import contact_sheet

    drawing.check_picture(out)
    chosen = training.recipe(recipe).replace(**settings)
    preprocessing = models.default_preprocessing(zoo.constructor(model).config)
    if size := size or chosen.image_size:
        preprocessing = dataclasses.replace(preprocessing, size=size)
    examples = sources.load(data)
    number = min(number, len(examples)) // 2 * 2 or 1  # images are mixed in pairs
    batches = sources.training_dataset(
        examples, preprocessing, chosen.augmentation, batch_size=number, epochs=1, seed=seed
    )
    try:
        images, labels = next(iter(batches))
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`DATA` must hold images that decode; `keras-vit data check` names those that do not. "
            f"Received: {data}"
        ) from error
    shown = preprocessing.to_rgb(preprocessing.unscale(images.numpy()))
    contact_sheet(shown, labels.numpy(), examples.class_names, out)
    print(f"Written: {out}, {number} images as the recipe {recipe} changes them")


@app.command()
def convert(
    source: Annotated[Path, opt.argument("SOURCE", "The folder to copy.")],
    dest: Annotated[Path, opt.argument("DEST", "The folder to write.")],
    format: Annotated[str, opt.option("Of new images: jpg (quality 95) or png.")] = "jpg",
    max_side: Annotated[
        int | None, opt.option("Pixels; larger images are shrunk and written anew.", min=1)
    ] = None,
    window: Annotated[
        str | None,
        opt.option(
            "Values that become black and white in images of more than 8 bits. By default the "
            "window of a DICOM file, and the range of each other image.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    processes: Annotated[int | None, opt.option("Default: one per core.", min=1)] = None,
) -> None:
    """Copy a folder so that training can read every image: HEIC, AVIF, TIFF, DICOM and others.

    What is readable already is copied byte for byte, `labels.csv` gets the new names, and SOURCE is
    never changed. The same command resumes after an interruption. Ends with status 1 if an image
    could not be converted.

    keras-vit data convert photos/ photos-jpg/
    """
    opt.check_out("DEST", dest)
    from keras_vit import image_conversion

    result = image_conversion.convert_images(
        source,
        dest,
        format=format,
        max_side=max_side,
        window=_read_window(window),
        processes=processes,
    )
    print(result.text())
    print(f"\nNext: {arguments.command('data', 'check', dest)}")
    if result.failed:
        raise typer.Exit(1)


def _read_window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"`--window` must read like 0,4095. Received: --window {text}") from None
    return low, high
