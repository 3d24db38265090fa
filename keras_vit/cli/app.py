"""The command `keras-vit`; training, data and weights have files of their own."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.cli import comparison, judging, pretraining
from keras_vit.cli import data as data_commands
from keras_vit.cli import doctor as doctor_command
from keras_vit.cli import training as training_commands
from keras_vit.cli import weights as weights_commands
from keras_vit.cli.loading import load_model
from keras_vit.cli.options import check_images

# Commands import what they need themselves: scikit-learn, matplotlib and tensorflow-datasets take
# seconds, and --help should not.

app = typer.Typer(
    help="Vision Transformers from a folder of images to a served model.\n\n"
    "A first run without any data of your own:\n\n"
    "    keras-vit train --data digits --model ViTMicro4 --image-size 16 --out runs/digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_ARTEFACT", help="Run folder or exported file."),
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    top: Annotated[int, typer.Option(min=1, help="How many classes to print.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 32,
) -> None:
    """Print the most probable classes of image files.

    Of a model that says yes or no to each label by itself, print all labels with a yes.

    keras-vit predict runs/photos cat.jpg dog.png
    """
    from keras_vit import export
    from keras_vit.preprocessing import Preprocessing

    check_images(images)
    predictor = export.load_predictor(model)
    with _naming(images):
        probabilities = predictor.predict([path.read_bytes() for path in images], batch_size)
    width = max(len(str(path)) for path in images)
    contract = Preprocessing(thresholds=predictor.thresholds)
    for path, row in zip(images, probabilities, strict=True):
        best = row.argsort()[::-1]
        best = best[contract.present(row)[best]] if predictor.thresholds else best[:top]
        scores = "   ".join(f"{predictor.labels[index]} {row[index]:.4f}" for index in best)
        print(f"{path!s:<{width}}   {scores or 'none of the labels'}")


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder or .keras file.")],
    saved_model: Annotated[
        Path | None, typer.Option(help="Folder for TF Serving; the next version goes into it.")
    ] = None,
    tflite: Annotated[Path | None, typer.Option(help="File for a phone.")] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of images to verify with; by default samples/ of the run."),
    ] = None,
) -> None:
    """Write a SavedModel and a TFLite file, and prove that they equal the model.

    keras-vit export runs/photos --saved-model serving/photos --tflite photos.tflite
    """
    from keras_vit import export as exporting
    from keras_vit import training

    if saved_model is None and tflite is None:
        raise ValueError("`--saved-model` or `--tflite` must be given. Received: neither")
    network = load_model(model)
    folder = images or training.Run(model).samples
    if not folder.is_dir():
        raise ValueError(
            f"`--images` must name a folder of images to verify with. Received: {folder}"
        )
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    if not paths:
        raise ValueError(f"`--images` must hold images to verify with. Received: {folder}, empty")
    encoded = [path.read_bytes() for path in paths]
    with _naming(paths):
        comparisons = exporting.publish(network, encoded, directory=saved_model, file=tflite)
    print(f"Compared with the Keras model on {len(paths)} images of {folder}:")
    print(exporting.table(comparisons))


app.command()(training_commands.train)
app.command()(training_commands.recipes)
app.command()(judging.evaluate)
app.command()(comparison.compare)
app.command()(judging.explain)
app.command()(judging.probe)
app.command()(judging.card)
app.command()(pretraining.pretrain)
app.add_typer(data_commands.app, name="data")
app.command()(doctor_command.doctor)
app.command()(weights_commands.models)
app.command()(weights_commands.convert)
app.command()(weights_commands.weights)


def main() -> None:
    """Runs the command; what a user can mend is printed as one message, not as a traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        sys.exit(1)


@contextlib.contextmanager
def _naming(paths: list[Path]) -> Iterator[None]:
    """Says which file an error about `images[index]` means."""
    try:
        yield
    except ValueError as error:
        match = re.search(r"`images\[(\d+)\]`", str(error))
        if not match:
            raise
        raise ValueError(f"{paths[int(match[1])]}: {error}") from error
