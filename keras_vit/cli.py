"""The command `keras-vit`: train, evaluate, predict, export, models; convert, weights."""

from __future__ import annotations

import contextlib
import enum
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import cli_weights

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


class OnBadImage(enum.StrEnum):
    """What to do with files that do not decode."""

    fail = "fail"
    skip = "skip"


class Optimizer(enum.StrEnum):
    """The optimizers of a recipe."""

    adamw = "adamw"
    sgd = "sgd"


class Precision(enum.StrEnum):
    """The precisions of a recipe."""

    auto = "auto"
    float32 = "float32"
    mixed_bfloat16 = "mixed_bfloat16"
    mixed_float16 = "mixed_float16"


_DATA_HELP = (
    "A folder with one folder of images for each class, a folder (or CSV file) with labels.csv, "
    "tfds:NAME, or digits (scikit-learn's handwritten digits, no download)."
)
DataOption = Annotated[str | None, typer.Option(help=_DATA_HELP)]
SizeOption = Annotated[
    str | None,
    typer.Option(help="Pixels: 224, or HEIGHTxWIDTH. By default the size of the weights."),
]
BadImageOption = Annotated[
    OnBadImage,
    typer.Option(help="Files that do not decode: list them and stop, or leave them out."),
]


@app.command()
def train(
    context: typer.Context,
    data: DataOption = None,
    model: Annotated[str, typer.Option(help="Constructor; see `keras-vit models`.")] = "ViTTi16",
    weights: Annotated[
        str | None, typer.Option(help="To start from: a name (`keras-vit weights`), file or URL.")
    ] = None,
    image_size: SizeOption = None,
    out: Annotated[Path, typer.Option(help="The run folder to write.")] = Path("runs/run"),
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    optimizer: Annotated[Optimizer | None, typer.Option(help="SGD has momentum 0.9.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled, of kernels only.")] = None,
    warmup_fraction: Annotated[
        float | None, typer.Option(help="Share of the steps in which the rate rises.")
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Largest global gradient norm; 0: no clipping.")
    ] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="In [0, 1).")] = None,
    crop_area: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Smallest and largest share of the image that a random crop keeps."),
    ] = None,
    flip: Annotated[
        bool | None,
        typer.Option("--flip/--no-flip", help="Mirror images at random; digits never."),
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="In [0, 1).")] = None,
    stochastic_depth: Annotated[
        float | None, typer.Option(help="Rate of the last block, in [0, 1).")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Of training; saved models are always float32.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of training; the split has its own.")] = None,
    validation_fraction: Annotated[float, typer.Option(help="Share held out.")] = 0.2,
    split_seed: Annotated[int, typer.Option(help="Of the split into training and held out.")] = 0,
    on_bad_image: BadImageOption = OnBadImage.fail,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard logs.")] = True,
    resume: Annotated[
        bool, typer.Option(help="Go on with the run in --out, as it was configured.")
    ] = False,
) -> None:
    """Fine-tune (or train) a model on labelled images.

    With --weights the defaults fine-tune: 4 epochs of AdamW at 1e-4, batches of 16. Without, they
    train from scratch: 80 epochs at 2e-3, batches of 32.

    keras-vit train --data photos/ --model ViTB16 --weights imagenet --out runs/photos
    """
    from keras_vit import training

    if resume:
        _check_resume_alone(context)
    elif data is None:
        raise ValueError(f"`--data` must name the training images. {_DATA_HELP} Received: none")
    base = training.FINETUNE if weights else training.FROM_SCRATCH
    if optimizer is Optimizer.sgd:
        base = base.replace(**training.SGD)
    config = training.RunConfig(
        # Absolute, so that the run can be resumed and evaluated from any folder.
        data=_absolute(data) or "",
        model=model,
        weights=_absolute(weights),
        image_size=cli_weights.parse_size(image_size),
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        on_bad_image=on_bad_image.value,
        recipe=base.replace(
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=lr,
            optimizer=optimizer and optimizer.value,
            weight_decay=weight_decay,
            warmup_fraction=warmup_fraction,
            clip_norm=clip_norm,
            label_smoothing=label_smoothing,
            crop_area=crop_area,
            flip=flip,
            dropout_rate=dropout,
            stochastic_depth_rate=stochastic_depth,
            precision=precision and precision.value,
            seed=seed,
        ),
    )
    try:
        training.train(config, out, resume=resume, tensorboard=tensorboard)
    except KeyboardInterrupt:
        run = training.Run(out)
        if run.state.is_file():
            print(
                f"\nStopped. {out} holds the last complete epoch. Go on with:\n"
                f"  keras-vit train --resume --out {out}"
            )
        elif run.last.is_file():
            print(
                "\nStopped before an epoch was complete, so there is nothing to go on with. "
                f"{run.last} holds the model as it was."
            )
        else:
            print("\nStopped before the training began.")
        raise typer.Exit(130) from None


@app.command()
def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="RUN_OR_FILE", help="Run folder, .keras or weight file.")
    ],
    constructor: Annotated[
        str | None, typer.Option("--model", help="Constructor that a weight file belongs to.")
    ] = None,
    data: DataOption = None,
    image_size: SizeOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 32,
    on_bad_image: BadImageOption = OnBadImage.fail,
    out: Annotated[
        Path | None,
        typer.Option(help="Where evaluation.json and confusion_matrix.png go."),
    ] = None,
) -> None:
    """Print accuracy and precision, recall and F1 of each class.

    Without --data a run is evaluated on the images that it held out; with it, on all of them.

    keras-vit evaluate runs/photos
    """
    from keras_vit import data as sources
    from keras_vit import training
    from keras_vit.evaluation.evaluate import evaluate as evaluate_model
    from keras_vit.visualization import plots

    network = _load_model(model, constructor, cli_weights.parse_size(image_size))
    run = training.Run(model)
    if data is None and not run.config.is_file():
        raise ValueError(
            f"`--data` must name labelled images, unless a run is evaluated. Received: {model}"
        )
    if data is None:
        config = run.read_config()
        examples = sources.load(config.data)
        examples = examples.subset(sources.read_split(run.split, examples)[1])
        out = out or run.path
    else:
        examples = sources.load(data)
        found = sources.audit(examples)
        examples = found.accept(examples, on_bad_image.value)
        if found.text():
            print(found.text())
        out = out or Path("evaluation")
    report = evaluate_model(network, examples, batch_size=batch_size)
    print(report.text())
    report.write_json(out / "evaluation.json")
    plots.confusion_matrix(report, out / "confusion_matrix.png")
    print(f"\nWritten: {out}/evaluation.json and {out}/confusion_matrix.png")


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

    keras-vit predict runs/photos cat.jpg dog.png
    """
    from keras_vit import export

    missing = [str(path) for path in images if not path.is_file()]
    if missing:
        raise ValueError(f"`IMAGE` must be existing files. Received: {', '.join(missing)}")
    predictor = export.load_predictor(model)
    with _naming(images):
        probabilities = predictor.predict([path.read_bytes() for path in images], batch_size)
    width = max(len(str(path)) for path in images)
    for path, row in zip(images, probabilities, strict=True):
        best = row.argsort()[::-1][:top]
        scores = "   ".join(f"{predictor.labels[index]} {row[index]:.4f}" for index in best)
        print(f"{path!s:<{width}}   {scores}")


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
    network = _load_model(model, None, None)
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


app.command()(cli_weights.models)
app.command()(cli_weights.convert)
app.command()(cli_weights.weights)


def main() -> None:
    """Runs the command; what a user can mend is printed as one message, not as a traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        sys.exit(1)


def _check_resume_alone(context: typer.Context) -> None:
    """A run goes on as it was configured; other numbers beside --resume would be ignored."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in ("resume", "out", "tensorboard")
        and getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"
    ]
    if given:
        raise ValueError(
            "`--resume` takes no option but --out and --tensorboard: a run goes on as it was "
            f"configured. Received: {', '.join(given)}"
        )


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


def _absolute(name: str | None) -> str | None:
    return str(Path(name).resolve()) if name and Path(name).exists() else name


def _load_model(path: Path, constructor: str | None, image_size: tuple[int, int] | None) -> Any:
    """Returns the Keras model of a run folder, a `.keras` file or a weight file."""
    import keras

    from keras_vit import training, weights, zoo

    if path.is_dir() and constructor is None:
        path = training.Run(path).last
    if not path.exists() and constructor is None:
        raise ValueError(f"`RUN_OR_FILE` must be a run folder or a file. Received: {path}")
    if constructor is None and path.suffix == ".keras":
        if image_size is not None:
            raise ValueError(
                "`--image-size` needs `--model`, the constructor to build at another size. "
                f"Received: --image-size with {path}"
            )
        return keras.saving.load_model(path, compile=False)
    if constructor is None:
        raise ValueError(
            "A weight file needs the constructor that it belongs to, and only `keras-vit evaluate` "
            f"takes one, as in `--model ViTB16`. Received: {path}"
        )
    build = zoo.constructor(constructor)
    checkpoint = weights.read_checkpoint(path, constructor)
    classes = checkpoint.traits["classes"]
    if not classes:
        raise ValueError(f"`RUN_OR_FILE` must have a classifier. Received: {path}, which has none")
    return build(
        weights=checkpoint,
        classes=classes,
        input_shape=(*image_size, checkpoint.traits.get("channels", 3)) if image_size else None,
    )
