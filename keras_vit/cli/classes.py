"""Command `keras-vit classes add`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keras_vit.cli import options as opt
from keras_vit.cli.typer_classes import Command
from keras_vit.escapes import say
from keras_vit.startup import start_keras

app = typer.Typer(help="Add classes to an exported classifier.", no_args_is_help=True)


@app.command(cls=Command)
def add(
    model: Annotated[Path, opt.argument("EXPORT", "Folder of `keras-vit export --prototypes`.")],
    name: Annotated[str, opt.argument("NAME", "Name of the new class.")],
    images: Annotated[
        list[Path], opt.argument("SOURCE...", "Images of the class, or folders of images.")
    ],
) -> None:
    """Add a class from a few images, without training.

    Changes the file classes.pb, which programs send to the server with each request; the SavedModel
    stays as it is, and so do the scores of its classes before the softmax.

    keras-vit export runs/photos --to serving --prototypes

    keras-vit classes add serving tulip tulips/
    """
    opt.check_exists("EXPORT", model, "a folder of `keras-vit export --prototypes`")
    opt.check_files("SOURCE", images, folders=True)
    paths = opt.find_images(images)
    start_keras()
    from keras_vit import export

    path = export.add_class(model, name, paths)
    say(f"Added {name}, from {len(paths)} images.\n\nWritten: {path}")
