"""What `keras-vit` says of a finished model: evaluate, explain, probe, card."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit.cli.loading import check_model, load_model
from keras_vit.cli.options import (
    BadImageOption,
    DataOption,
    OnBadImage,
    SizeOption,
    absolute,
    check_data,
    check_exists,
    check_images,
    parse_size,
)
from keras_vit_toolkit import start_keras


class Method(enum.StrEnum):
    """Kinds of maps."""

    all = "all"
    attention = "attention"
    rollout = "rollout"
    gradient_rollout = "gradient_rollout"
    grad_cam = "grad_cam"


ModelArgument = Annotated[
    Path, typer.Argument(metavar="RUN_OR_FILE", help="Run folder, .keras or weight file.")
]
ConstructorOption = Annotated[
    str | None, typer.Option("--model", help="Constructor that a weight file belongs to.")
]
BatchOption = Annotated[int, typer.Option(min=1, help="Images in a step.")]


def evaluate(
    model: ModelArgument,
    constructor: ConstructorOption = None,
    data: DataOption = None,
    image_size: SizeOption = None,
    batch_size: BatchOption = 32,
    on_bad_image: BadImageOption = OnBadImage.fail,
    out: Annotated[
        Path | None,
        typer.Option(help="Where evaluation.json and the picture go."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write a page: calibration, mistakes with what the model looked at, accuracy "
            "on the values of each further column of labels.csv, problems of the images.",
        ),
    ] = None,
    real: Annotated[
        Path | None,
        typer.Option(help="For --report: real.json, ImageNet's reassessed labels."),
    ] = None,
) -> None:
    """Print accuracy and precision, recall and F1 of each class.

    Where images may show several classes, print average precision in place of accuracy.

    Without --data a run is evaluated on the images that it held out; with it, on all of them.

    keras-vit evaluate runs/photos --report runs/photos/report
    """
    if real is not None and report is None:
        raise ValueError("`--real` needs `--report`. Received: --real without it")
    size = parse_size(image_size)
    check_model(model, constructor)
    check_data(data)
    check_exists("--real", real, "ImageNet's reassessed labels, real.json")
    start_keras()
    from keras_vit import training
    from keras_vit.evaluation import MultiLabelReport
    from keras_vit.evaluation.evaluate import evaluate as evaluate_model
    from keras_vit.visualization import multi_label, plots

    network = load_model(model, constructor, size)
    examples, held_out = _examples(model, data, on_bad_image)
    out = out or (training.Run(model).path if data is None else Path("evaluation"))
    if report is not None:
        scores = _write_report(model, network, examples, held_out, report, real, batch_size)
    else:
        scores = evaluate_model(network, examples, batch_size=batch_size, verbose=_progress())
    print(scores.text())
    scores.write_json(out / "evaluation.json")
    if isinstance(scores, MultiLabelReport):
        picture = multi_label.label_scores(scores, out / "label_scores.png")
    else:
        picture = plots.confusion_matrix(scores, out / "confusion_matrix.png")
    print(f"\nWritten: {out}/evaluation.json and {out}/{picture.name}")
    if report is not None:
        print(f"Written: {report}/index.html, which opens in any browser, and report.json")


def explain(
    model: ModelArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    constructor: ConstructorOption = None,
    image_size: SizeOption = None,
    method: Annotated[
        list[Method] | None, typer.Option(help="Kind of map; may be repeated.", show_default="all")
    ] = None,
    of_class: Annotated[
        str | None,
        typer.Option(
            "--class", help="Class to explain, by name or number; by default the one it says."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("explanation.png"),
) -> None:
    """Draw what a model looks at in images: a map of what counted, laid over each image.

    Red counted most, blue least. Attention and rollout show where the model looks;
    gradient_rollout and grad_cam what counts for the class.

    keras-vit explain runs/photos cat.jpg dog.png
    """
    size = parse_size(image_size)
    check_model(model, constructor)
    check_images(images)
    start_keras()
    from keras_vit import reports
    from keras_vit.visualization import drawing
    from keras_vit.visualization.relevance import METHODS

    drawing.check_picture(out)
    network = load_model(model, constructor, size)
    chosen = [m.value for m in method or [Method.all]]
    methods = METHODS if Method.all in chosen else tuple(dict.fromkeys(chosen))
    figure = reports.explain(network, images, methods=methods, of_class=of_class)
    print(f"Written: {drawing.save_figure(figure, out)}")


def probe(
    model: ModelArgument,
    constructor: ConstructorOption = None,
    data: DataOption = None,
    image_size: SizeOption = None,
    cache: Annotated[
        Path | None, typer.Option(help="File to keep the features in, .npz; read if they fit.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of probe.json and the picture.")] = Path(
        "probe"
    ),
    batch_size: BatchOption = 32,
    on_bad_image: BadImageOption = OnBadImage.fail,
) -> None:
    """Measure what a model's features know, without training it.

    Fits a linear classifier to 1, 5, 10 and 25 examples of each class (the ViT paper's few-shot
    evaluation), asks the nearest neighbours, and fits logistic regression to all; scores each on
    the images that a training would hold out; and draws some of these beside the nearest others.

    keras-vit probe Ti_16.npz --model ViTTi16 --data photos --cache features.npz
    """
    size = parse_size(image_size)
    check_model(model, constructor)
    check_data(data)
    start_keras()
    from keras_vit import data as sources
    from keras_vit import files, reports, training

    run = training.Run(model)
    own = run.config.is_file() and data in (None, _given(run, data))
    if data is None and not own:
        raise ValueError(
            f"`--data` must name labelled images, unless a run is probed. Received: {model}"
        )
    network = load_model(model, constructor, size, classifier=False)
    if own or data is None:
        examples = sources.load(run.read_config().data)
        parts = sources.read_split(run.split, examples)
    else:
        examples = sources.load(data)
        found = sources.audit(examples)
        examples = found.accept(examples, on_bad_image.value)
        parts = sources.split(examples, found.digests)
    known, asked = (examples.subset(part) for part in parts)
    result = reports.probe(
        network,
        known,
        asked,
        cache=cache,
        sheet=out / "neighbours.png",
        batch_size=batch_size,
        verbose=1,
    )
    print(result.text())
    files.write_json(out / "probe.json", result.to_json())
    print(f"\nWritten: {out}/probe.json and neighbours.png")


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; by default card/ of the run.")
    ] = None,
) -> None:
    """Write the model card of a run: README.md as model hubs expect it, with its pictures.

    keras-vit card runs/photos
    """
    check_exists("RUN", run, "a folder that `keras-vit train --out` has written")
    start_keras()
    from keras_vit import reports

    path = reports.write_card(run, out)
    print(f"Written: {path}. Complete what stands there in italics before you publish it.")


def _examples(model: Path, data: str | None, on_bad_image: OnBadImage) -> tuple[Any, bool]:
    """Returns the images to evaluate on, and whether they are those that a run held out."""
    from keras_vit import data as sources
    from keras_vit import training

    run = training.Run(model)
    if data is None and not run.config.is_file():
        raise ValueError(
            f"`--data` must name labelled images, unless a run is evaluated. Received: {model}"
        )
    if data is None:
        examples = sources.load(run.read_config().data)
        return examples.subset(sources.read_split(run.split, examples)[1]), True
    if run.config.is_file() and _given(run, data) is not None:
        print(
            "Note: most of these images are those that the run was trained on. Without --data it "
            "is evaluated on those that it held out.\n"
        )
    examples = sources.load(data)
    found = sources.audit(examples)
    examples = found.accept(examples, on_bad_image.value)
    if found.text():
        print(found.text())
    return examples, False


def _progress() -> int:
    """Whether progress is shown: on a terminal, for a file would be full of its steps."""
    return int(sys.stdout.isatty())


def _given(run: Any, data: str | None) -> str | None:
    """Returns what the user calls the images, if they are those of a run."""
    return data if absolute(data) == run.read_config().data else None


def _write_report(
    model: Path,
    network: Any,
    examples: Any,
    held_out: bool,
    report: Path,
    real: Path | None,
    batch_size: int,
) -> Any:
    from keras_vit import reports, training

    judgement = reports.judge(
        network,
        examples,
        real=str(real) if real else None,
        batch_size=batch_size,
        verbose=_progress(),
    )
    source = Path(examples.source).name or examples.source
    run = training.Run(model)
    configuration = run.as_written() if run.config.is_file() else {}
    versions = configuration.pop("versions", None) or training.run.versions()
    reports.write_evaluation(
        judgement,
        report,
        title=f"{model.resolve().name}",
        subtitle=f"{len(examples)} images of {source}" + (", held out" if held_out else ""),
        configuration=configuration,
        versions=versions,
    )
    return judgement.scores
