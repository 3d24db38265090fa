"""Commands `keras-vit data check`, `preview`, `labels`, `convert`, `pack` and `unpack`."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import arguments
from keras_vit.cli import options as opt
from keras_vit.cli.typer_classes import Command
from keras_vit.escapes import say
from keras_vit.startup import start_keras

app = typer.Typer(help="Check, preview, convert and pack images.", no_args_is_help=True)
_MAX_PIXELS = 2**27  # of all images of a preview, whose pixels need 12 bytes each
MaxSideOption = Annotated[
    int | None, opt.option("Maximum side in pixels; larger images are shrunk.", min=1)
]
DataArgument = Annotated[str, opt.argument("DATA", opt.DATA_HELP, callback=opt.check_data)]


@app.command(cls=Command)
def check(
    data: DataArgument, task: opt.TaskOption = "classification", json: opt.JsonOption = None
) -> None:
    """Report unreadable files, duplicates, conflicting labels, class imbalance and blank images.

    Nothing is changed. Ends with status 1 if training would be refused.

    keras-vit data check photos/
    """
    start_keras()
    from keras_vit import data as sources
    from keras_vit import tasks

    report = sources.check(tasks.get(task).load(data))
    say(report.text())
    opt.write_json(json, report.to_json())
    if report.blocking:
        raise typer.Exit(1)


@app.command(cls=Command)
def preview(
    data: DataArgument,
    task: opt.TaskOption = "classification",
    out: Annotated[Path, opt.option("Output image file.")] = Path("preview.png"),
    model: Annotated[str, opt.option("Constructor that sets the size.")] = "ViTTi16",
    image_size: opt.SizeOption = None,
    recipe: opt.RecipeOption = None,
    set_: opt.SetOption = None,
    number: Annotated[int, opt.option("Number of images.", min=2, max=400)] = 32,
    seed: Annotated[int, opt.option("Random seed for image selection and augmentation.")] = 0,
) -> None:
    """Draw training images as the model receives them: cropped, flipped, augmented and mixed.

    keras-vit data preview photos/ --recipe deit --out preview.png
    """
    opt.check_out("--out", out, folder=False)
    settings = opt.read_settings(set_, image_size=opt.parse_size(image_size))
    start_keras()
    import tensorflow as tf

    from keras_vit import data as sources
    from keras_vit import models, tasks, training, zoo
    from keras_vit.visualization import drawing

    drawing.check_picture(out)
    task_class = tasks.get(task)
    recipe = recipe or task_class.recipe
    chosen_recipe = training.recipe(recipe).replace(**settings).replace(distillation="none")
    preprocessing = models.default_preprocessing(zoo.constructor(model).config)
    examples = task_class.load(data)
    config = training.RunConfig(data, model, recipe=chosen_recipe, task=task)  # without a teacher
    chosen_recipe = task_class.settled(config, examples).config.recipe
    preprocessing = dataclasses.replace(
        preprocessing,
        size=chosen_recipe.image_size or preprocessing.size,
        resize=chosen_recipe.resize or preprocessing.resize,
    )
    number = min(number, len(examples)) // 2 * 2 or 1  # images are mixed in pairs
    if number * math.prod(preprocessing.size) > _MAX_PIXELS:
        raise ValueError(
            f"`--image-size` must be at most {_MAX_PIXELS // number:,} pixels for {number} "
            f"images (`--number`). Received: {preprocessing.size[0]} x {preprocessing.size[1]}"
        )
    batches = sources.training_dataset(
        examples, preprocessing, chosen_recipe.augmentation, batch_size=number, epochs=1, seed=seed
    )
    try:
        images, targets = next(iter(batches))
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`DATA` must contain only images that can be decoded; `keras-vit data check` lists "
            f"the images that cannot. Received: {data}"
        ) from error
    pixels = preprocessing.to_rgb(preprocessing.unscale(images.numpy()))
    task_class(None).draw_batch(pixels, targets, examples.class_names, out)
    print(f"Written: {out} ({number} images with the augmentation of the recipe {recipe})")


@app.command(cls=Command)
def labels(
    folds: Annotated[Path, opt.argument("FOLDS", "Folder of `keras-vit train --folds`.")],
    out: Annotated[Path, opt.option("Output folder.")] = Path("labels"),
) -> None:
    """List images whose label is likely wrong, by models that were not trained on them.

    Writes a page with the images (index.html), a table with the likely labels (labels.csv) and one
    without these images (without.csv), as data for training. The images are not changed.

    keras-vit train --data photos/ --recipe probe --folds 5 --out runs/folds

    keras-vit data labels runs/folds --out labels
    """
    opt.check_exists("FOLDS", folds, "a folder of `keras-vit train --folds`")
    opt.check_out("--out", out, ("index.html", "labels.csv", "without.csv"))
    start_keras()
    from keras_vit import reports

    number = reports.write_label_errors(folds, out, verbose=int(sys.stdout.isatty()))
    page = out / "index.html"
    print(f"Written: {page}, labels.csv and without.csv ({number} labels are likely wrong)")


@app.command(cls=Command)
def convert(
    source: Annotated[Path, opt.argument("SOURCE", "Source folder.")],
    dest: Annotated[Path, opt.argument("DEST", "Output folder.")],
    format: Annotated[str, opt.option("Output format: jpg or png.")] = "jpg",
    max_side: MaxSideOption = None,
    window: Annotated[
        str | None,
        opt.option(
            "Values mapped to black and white in images with more than 8 bits. Default: the "
            "window stored in a DICOM file, or the value range of any other image.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    processes: Annotated[int | None, opt.option("By default one per core.", min=1, max=256)] = None,
) -> None:
    """Copy a folder, converting images that training cannot read, such as HEIC or DICOM.

    Readable images are copied byte for byte, `labels.csv` gets the new names, and SOURCE is
    never changed. The same command resumes after an interruption, and keeps files that you
    changed in DEST. Ends with status 1 if an image could not be converted.

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
    say(result.text())
    print(f"\nNext: {arguments.command('data', 'check', dest)}")
    if result.failed:
        raise typer.Exit(1)


@app.command(cls=Command)
def pack(
    source: Annotated[
        str, opt.argument("SOURCE", "Folder, local or at s3:// or gs://, or tfds:NAME.")
    ],
    dest: Annotated[Path, opt.argument("DEST", "Output folder.")],
    max_side: MaxSideOption = None,
    processes: Annotated[int | None, opt.option("By default one per core.", min=1, max=256)] = None,
) -> None:
    """Pack a folder into a few large files, to copy or to read from object storage.

    DEST is used like the folder: with the same images in the same order. The same command resumes
    after an interruption. SOURCE is never changed.

    keras-vit data pack photos/ photos-packed/

    keras-vit train --data photos-packed/ --out runs/photos
    """
    opt.check_out("DEST", dest)
    from keras_vit.storage import packing

    if source.startswith("tfds:"):
        if max_side or processes:
            raise ValueError("`--max-side` and `--processes` need a folder. Received: " + source)
        start_keras()
        from keras_vit.data.sources.tfds import tfds_parts

        parts, plan = tfds_parts(source.removeprefix("tfds:"), packing.SHARD_BYTES)
        packed = packing.pack_parts(parts, dest, plan)
    else:
        packed = packing.pack(source, dest, max_side=max_side, processes=processes)
    print(f"Written: {dest} ({packed.text()})")
    print(f"\nNext: {arguments.command('data', 'check', dest)}")


@app.command(cls=Command)
def unpack(
    source: Annotated[str, opt.argument("SOURCE", "Folder of `keras-vit data pack`.")],
    dest: Annotated[Path, opt.argument("DEST", "Output folder.")],
) -> None:
    """Write the files of packed shards into a folder, byte for byte.

    keras-vit data unpack photos-packed/ photos/
    """
    from keras_vit.storage import packing

    print(f"Written: {dest} ({packing.unpack(source, dest).text()})")


def _read_window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"`--window` must be LOW,HIGH. Received: --window {text}") from None
    return low, high
