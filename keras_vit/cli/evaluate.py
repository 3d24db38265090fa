"""Commands for trained models: `keras-vit evaluate`, `explain`, `probe` and `card`."""

from __future__ import annotations

import contextlib
import enum
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from keras_vit.cli import options as opt
from keras_vit.cli.model_argument import check_model, load_given_model
from keras_vit.escapes import say
from keras_vit.startup import start_keras

_EVALUATION = (
    *("evaluation.json", "confusion_matrix.png", "label_scores.png"),
    *("precision_recall.png", "iou.png", "scatter.png"),
)
_REPORT = ("index.html", "report.json")
_PROBE = ("probe.json", "neighbors.png")

# Typer does not support lists of a `Literal`.
Method = enum.StrEnum("Method", ["all", "attention", "rollout", "gradient_rollout", "grad_cam"])
ModelArgument = Annotated[Path, opt.argument("RUN", "Run folder, or a model or weight file.")]


def evaluate(
    model: ModelArgument,
    constructor: opt.ConstructorOption = None,
    data: opt.DataOption = None,
    image_size: opt.SizeOption = None,
    batch_size: opt.BatchOption = 32,
    on_bad_image: opt.BadImageOption = "fail",
    part: Annotated[
        Literal["train", "validation", "test"] | None,
        opt.option(
            "Split to evaluate on. Default for a run: validation. Default for --data: test if "
            "available, otherwise validation, otherwise all images.",
            show_default=False,
        ),
    ] = None,
    with_training_images: Annotated[
        bool,
        opt.option(
            "With --data: include images that the run was trained on.", "--with-training-images"
        ),
    ] = False,
    out: Annotated[
        Path | None,
        opt.option(
            "Output folder for evaluation.json and the plot.",
            show_default="the run for its validation images, otherwise evaluation",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        opt.option(
            "Also write an HTML report to this folder: calibration, mistakes with attribution "
            "maps, accuracy for each value of the extra columns in labels.csv, and image problems.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Print the accuracy of a model, and the precision, recall and F1 score of each class.

    For multi-label data, print average precision, and for segmentation the IoU of each class.

    Without --data a run is evaluated on its validation images; with it, on all images except its
    training images, which are recognized by their content.

    keras-vit evaluate runs/photos --report runs/photos/report
    """
    size = opt.parse_size(image_size)
    check_model(model, constructor)
    if data is None and constructor is None and model.suffix == ".keras" and model.is_file():
        raise ValueError(f"`--data` must be given unless `RUN` is a run. Received: {model}")
    held_out = data is None and part in (None, "validation") and model.is_dir()
    out = out or (model if held_out else Path("evaluation"))
    opt.check_out("--out", out, _EVALUATION)
    opt.check_out("--report", report, _REPORT)
    start_keras()
    from keras_vit import files, output_folder, training
    from keras_vit.models import preprocessing_of
    from keras_vit.tasks.evaluate import evaluate as evaluate_model
    from keras_vit.tasks.registry import task_of
    from keras_vit.tasks.run_data import evaluation_images

    with contextlib.ExitStack() as locks:
        locks.enter_context(output_folder.writing(out, "evaluate", _EVALUATION))
        if report is not None and report.resolve() != out.resolve():
            locks.enter_context(output_folder.writing(report, "evaluate", _REPORT))
        network = load_given_model(model, constructor, size)
        chosen = evaluation_images(
            training.Run(model if model.is_dir() else model.parent),
            data,
            task_of(preprocessing_of(network)),
            on_bad_image=on_bad_image,
            part=part,
            training_images=with_training_images,
        )
        # Keras' `verbose`: no progress bars in log files.
        progress = {"batch_size": batch_size, "verbose": int(sys.stdout.isatty())}
        if report is not None:
            scores = _write_report(model, network, chosen, report, progress)
        else:
            scores = evaluate_model(network, chosen.examples, **progress)
        say(scores.text())
        content = {**scores.to_json(), "images": chosen.selection, "inventory": chosen.inventory}
        files.write_json(out / "evaluation.json", content)
        pictures = task_of(preprocessing_of(network), chosen.examples).draw(scores, out)
        names = [f"{out}/evaluation.json", *(f"{out}/{path.name}" for path in pictures.values())]
        print(f"\nWritten: {' and '.join(names)}")
        if report is not None:
            print(f"Written: {report}/index.html (open it in a browser) and report.json")


def explain(
    model: ModelArgument,
    images: Annotated[list[Path], opt.argument("IMAGE...", "Image files.")],
    constructor: opt.ConstructorOption = None,
    image_size: opt.SizeOption = None,
    method: Annotated[
        list[Method] | None, opt.option("Map to draw; may be repeated.", show_default="all")
    ] = None,
    of_class: Annotated[
        str | None,
        opt.option("Class to explain, by name or index (default: the predicted class).", "--class"),
    ] = None,
    out: Annotated[Path, opt.option("Output image file.")] = Path("explanation.png"),
) -> None:
    """Draw images overlaid with relevance maps, which show what a prediction is based on.

    Red is high, blue is low. attention and rollout are the same for all classes;
    gradient_rollout and grad_cam show what contributes to one class.

    keras-vit explain runs/photos cat.jpg dog.png
    """
    size = opt.parse_size(image_size)
    check_model(model, constructor)
    opt.check_files("IMAGE", images)
    opt.check_out("--out", out, folder=False)
    start_keras()
    from keras_vit import reports
    from keras_vit.visualization import drawing
    from keras_vit.visualization.attention_maps import METHODS

    drawing.check_picture(out)
    network = load_given_model(model, constructor, size)
    method_names = [*map(str, method or [Method.all])]
    methods = METHODS if "all" in method_names else tuple(dict.fromkeys(method_names))
    figure = reports.explain(network, images, methods=methods, of_class=of_class)
    print(f"Written: {drawing.save_figure(figure, out)}")


def probe(
    model: ModelArgument,
    constructor: opt.ConstructorOption = None,
    data: opt.DataOption = None,
    image_size: opt.SizeOption = None,
    cache: Annotated[
        Path | None,
        opt.option("Cache file for the features (.npz); reused for the same model and images."),
    ] = None,
    out: Annotated[Path, opt.option("Output folder for probe.json and the plot.")] = Path("probe"),
    batch_size: opt.BatchOption = 32,
    on_bad_image: opt.BadImageOption = "fail",
) -> None:
    """Evaluate a model's frozen features with linear classifiers and nearest neighbors.

    Fits a linear classifier to 1, 5, 10 and 25 examples of each class (the ViT paper's few-shot
    evaluation) and logistic regression to all, and classifies by nearest neighbors; evaluates each
    on the validation images; and draws some of them beside their nearest neighbors.

    keras-vit probe Ti_16.npz --model ViTTi16 --data photos --cache features.npz
    """
    size = opt.parse_size(image_size)
    check_model(model, constructor)
    if data is None and not (model / "config.yaml").is_file():
        raise ValueError(f"`--data` must be given unless `RUN` is a run. Received: {model}")
    opt.check_out("--cache", cache, folder=False)
    opt.check_out("--out", out, _PROBE)
    start_keras()
    from keras_vit import data as sources
    from keras_vit import files, output_folder, reports, training
    from keras_vit.models import preprocessing_of
    from keras_vit.tasks.registry import check_command

    run = training.Run(model)
    on_run_data = run.config.is_file() and opt.absolute(data) == run.read_config().data
    with output_folder.writing(out, "probe", _PROBE):
        network = load_given_model(model, constructor, size, classifier=False)
        task = check_command("probe", preprocessing_of(network))
        if on_run_data or data is None:
            training_images, validation_images = run.examples("train"), run.examples()
        else:
            examples, audit = sources.usable_images(task.load(data), on_bad_image)
            indices = sources.split(examples, audit.digests, audit.twins)
            training_images, validation_images = map(examples.subset, indices)
        result = reports.probe(
            network,
            training_images,
            validation_images,
            cache=cache,
            sheet=out / "neighbors.png",
            batch_size=batch_size,
            verbose=int(sys.stdout.isatty()),
        )
        say(result.text())
        files.write_json(out / "probe.json", result.to_json())
        print(f"\nWritten: {out}/probe.json and neighbors.png")


def card(
    run: Annotated[Path, opt.argument("RUN", "Run folder.")],
    out: Annotated[
        Path | None, opt.option("Output folder (default: card/ in the run folder).")
    ] = None,
) -> None:
    """Write the model card of a run: README.md in the format of model hubs, with figures.

    keras-vit card runs/photos
    """
    opt.check_exists("RUN", run / "config.yaml", "a run folder written by `keras-vit train --out`")
    opt.check_out("--out", out or run / "card")
    start_keras()
    from keras_vit import reports

    path = reports.write_card(run, out)
    print(f"Written: {path}. Complete the parts in italics before you publish the card.")


def _write_report(
    model: Path, network: Any, chosen: Any, report: Path, progress: dict[str, int]
) -> Any:
    from keras_vit import reports, tasks, training
    from keras_vit.runs import config

    examples, selection, inventory, audit = chosen
    details = tasks.evaluate_in_detail(network, examples, **progress)
    source = Path(examples.source).name or examples.source
    unreadable = sum(sum(n.values()) for n in (inventory or {}).get("unreadable", {}).values())
    unreadable_text = f"; {unreadable} images cannot be read" if unreadable else ""
    run = training.Run(model)
    configuration = run.as_written() if run.config.is_file() else {}
    versions = configuration.pop("versions", None) or config.versions()
    reports.write_evaluation(
        details,
        examples,
        report,
        title=f"{model.resolve().name}",
        subtitle=f"{len(examples)} images of {source}: {selection}{unreadable_text}",
        configuration=configuration,
        versions=versions,
        audit=audit,
        progress=bool(progress["verbose"]),
    )
    return details.scores
