"""The page that `keras-vit evaluate --report` writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from keras_vit import files
from keras_vit.reports.judgement import Judgement
from keras_vit.tasks.classification.calibration import Calibration
from keras_vit.tasks.classification.figures import confusion_figure, reliability_diagram
from keras_vit.tasks.classification.metrics import Report, shorten
from keras_vit.tasks.multi_label import figures
from keras_vit.tasks.multi_label.metrics import MultiLabelReport
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg

_MOST_PAIRS = 10  # of classes that are taken for one another


def write_evaluation(
    judgement: Judgement,
    folder: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    configuration: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
) -> Path:
    """Writes `index.html`, which opens without a network, and `report.json`.

    Args:
        judgement: What was found out.
        folder: Where to; it is made if it is not there.
        title: Name of the model.
        subtitle: What it was judged on.
        configuration: What it was trained with. Paths are shown without their folders.
        versions: Of the packages.

    Returns:
        The page.

    Example:
        >>> from keras_vit import data, models
        >>> from keras_vit.reports import judge
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> judgement = judge(models.build(config), data.load("digits").subset(range(50)))
        >>> path = write_evaluation(judgement, "report", title="A digit", subtitle="50 digits")
        >>> "<h1>A digit</h1>" in path.read_text()
        True
    """
    out = Path(folder)
    told = without_folders(dict(configuration or {}))
    found = html_page.Page(title, subtitle)
    _add_scores(found, judgement)
    if judgement.calibration is not None:
        _add_calibration(found, judgement.calibration)
    if isinstance(judgement.scores, Report):
        _add_mistakes(found, judgement)
    if judgement.slices:
        _add_slices(found, judgement)
    checked = judgement.checked.text()
    found.section("data", "What is wrong with the images?", html_page.preformatted(checked))
    if told:
        text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
        found.section("configuration", "How was it trained?", html_page.preformatted(text))
    if versions:
        rows = [[name, str(version)] for name, version in versions.items() if version]
        found.section(
            "versions", "With which versions?", html_page.table(["package", "version"], rows)
        )
    with files.atomic_path(out / "index.html") as temporary:
        # A file's name need not be valid UTF-8.
        temporary.write_text(found.html(), encoding="utf-8", errors="backslashreplace")
    content = {**judgement.to_json(), "configuration": told, "versions": dict(versions or {})}
    files.write_json(out / "report.json", content)
    return out / "index.html"


def without_folders(value: Any) -> Any:
    """Returns a value with the last part of every absolute path in it: folders are private.

    Args:
        value: Text, numbers, and lists and dictionaries of them.

    Returns:
        The same, with lists for tuples.

    Example:
        >>> without_folders({"data": "/home/me/photos", "model": "ViTB16", "names": ("a/b.jpg",)})
        {'data': 'photos', 'model': 'ViTB16', 'names': ['a/b.jpg']}
    """
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    if isinstance(value, str) and "\n" not in value and Path(value).is_absolute():
        return Path(value).name
    return value


def _add_scores(found: html_page.Page, judgement: Judgement) -> None:
    scores = judgement.scores
    if isinstance(scores, MultiLabelReport):
        _add_label_scores(found, scores)
        return
    low, high = scores.interval
    summary = [(f"{scores.accuracy:.1%}", f"accuracy, {low:.1%} to {high:.1%} with 95% confidence")]
    if scores.top5 is not None:
        summary.append((f"{scores.top5:.1%}", "true class among the five most probable"))
    summary.append((f"{scores.macro_f1:.3f}", "mean F1 of the classes"))
    summary.append((f"{scores.num_examples}", "images"))
    found.section("summary", "Is it good?", html_page.numbers(summary))
    rows = [
        [shorten(r.name), f"{r.precision:.3f}", f"{r.recall:.3f}", f"{r.f1:.3f}", str(r.support)]
        for r in scores.per_class
    ]
    head = ["class", "precision", "recall", "F1", "images"]
    found.section(
        "classes",
        "How good is it on each class?",
        html_page.table(head, rows),
        html_page.paragraph(
            "Precision: of the images that it gives this class, the share that is right. Recall: "
            "of the images of this class, the share that it finds.",
            note=True,
        ),
    )
    figure = confusion_figure(scores)
    parts = [html_page.drawing(to_svg(figure, "confusion matrix"))]
    if pairs := _confused(scores):
        parts.append(html_page.table(["true class", "taken for", "times", "of its images"], pairs))
    found.section("confusion", "Which classes does it take for one another?", *parts)


def _add_label_scores(found: html_page.Page, scores: MultiLabelReport) -> None:
    mean = scores.mean_average_precision
    summary = [
        ("-" if mean is None else f"{mean:.3f}", "mean average precision"),
        (f"{scores.micro_f1:.3f}", "F1 of all decisions"),
        (f"{scores.macro_f1:.3f}", "mean F1 of the labels"),
        (f"{scores.subset_accuracy:.1%}", "images with every label right"),
        (f"{scores.num_examples}", "images"),
    ]
    found.section("summary", "Is it good?", html_page.numbers(summary))
    rows = [
        [
            shorten(r.name), f"{r.precision:.3f}", f"{r.recall:.3f}", f"{r.f1:.3f}",
            "-" if r.average_precision is None else f"{r.average_precision:.3f}",
            str(r.support), f"{r.threshold:.3f}",
        ]
        for r in scores.per_label
    ]  # fmt: skip
    head = ["label", "precision", "recall", "F1", "average precision", "images", "threshold"]
    found.section(
        "classes",
        "How good is it on each label?",
        html_page.table(head, rows),
        html_page.drawing(to_svg(figures.label_figure(scores), "scores of the labels")),
    )


def _add_calibration(found: html_page.Page, calibration: Calibration) -> None:
    before, after = calibration.before.error, calibration.after.error
    temperature = calibration.temperature
    what = "too sure" if temperature > 1.02 else "not sure enough"
    what = "about as sure as it should be" if 0.98 <= temperature <= 1.02 else what
    found.section(
        "calibration",
        "Can its confidence be trusted?",
        html_page.drawing(to_svg(reliability_diagram(calibration), "reliability diagram")),
        html_page.paragraph(
            f"On average its confidence is {before:.3f} away from how often it is right (expected "
            f"calibration error, 15 bins). The temperature that fits best is {temperature:.2f}: as "
            f"it is, the model is {what}. With temperatures fitted on the other half of the images "
            f"the error is {after:.3f}. A temperature changes no answer."
        ),
    )


def _add_mistakes(found: html_page.Page, judgement: Judgement) -> None:
    title = "What is it most sure about, and wrong?"
    if not judgement.mistakes:
        found.section("mistakes", title, html_page.paragraph("Nothing: every answer is right."))
        return
    items = []
    for mistake in judgement.mistakes:
        images = [mistake.pixels, *([] if mistake.explained is None else [mistake.explained])]
        caption = (
            f"{mistake.true}, not {mistake.predicted} ({mistake.confidence:.0%}): {mistake.name}"
        )
        items.append((images, caption))
    parts = [html_page.pictures(items)]
    if judgement.mistakes[0].explained is not None:
        parts.append(
            html_page.paragraph(
                "Below each image: what counted for the class it was given, by gradient-weighted "
                "attention rollout; red most, blue least.",
                note=True,
            )
        )
    found.section("mistakes", title, *parts)


def _add_slices(found: html_page.Page, judgement: Judgement) -> None:
    rows = [
        [
            f"{row.column}: {row.value or '(empty)'}", f"{row.accuracy:.3f}",
            f"{row.interval[0]:.3f} to {row.interval[1]:.3f}", str(row.images),
        ]
        for row in judgement.slices
    ]  # fmt: skip
    head = ["images with", "accuracy", "95% interval", "images"]
    found.section("slices", "Is it as good on every part?", html_page.table(head, rows))


def _confused(scores: Report) -> list[list[str]]:
    cells = scores.confused
    cells = cells[cells[:, 0] != cells[:, 1]]
    pairs = []
    for row, column, times in cells[(-cells[:, 2]).argsort(kind="stable")[:_MOST_PAIRS]].tolist():
        true, taken = scores.per_class[row], scores.per_class[column]
        share = f"{times / true.support:.1%}"
        pairs.append([shorten(true.name), shorten(taken.name), str(times), share])
    return pairs
