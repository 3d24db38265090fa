"""Sections of the evaluation page of a classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.evaluation.slices import Slice
from keras_vit.tasks.classification.calibration import Calibration
from keras_vit.tasks.classification.figures import confusion_matrix, reliability_diagram
from keras_vit.tasks.classification.metrics import Report, shorten
from keras_vit.tasks.task import Details
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg
from keras_vit.visualization.html_page import Section

_MOST_PAIRS = 10  # pairs of confused classes


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """A misclassified image with its relevance map.

    Args:
        name: Name of the image.
        true: True class.
        predicted: Predicted class.
        confidence: Probability of the predicted class, in [0, 1].
        pixels: Image at the model's input size, (h, w, C), uint8.
        explained: Image overlaid with the relevance map of the predicted class, (h, w, 3), uint8;
            None for a model that is not a Vision Transformer.
    """

    name: str
    true: str
    predicted: str
    confidence: float
    pixels: np.ndarray
    explained: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationDetails(Details):
    """A report of a classifier, its calibration, mistakes and slices.

    Args:
        scores: Accuracy and per-class scores.
        calibration: Calibration of the confidence; None if the classes are not exclusive.
        mistakes: Most confident mistakes.
        slices: Accuracy for each value of each column of the data.
    """

    scores: Report
    calibration: Calibration | None
    mistakes: tuple[Mistake, ...]
    slices: tuple[Slice, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns everything except the images as a dictionary of lists, numbers and strings."""
        mistakes = [
            {f.name: getattr(m, f.name) for f in dataclasses.fields(m)[:4]} for m in self.mistakes
        ]
        return {
            "scores": self.scores.to_json(),
            "calibration": _calibration_json(self.calibration),
            "mistakes": mistakes,
            "slices": [row._asdict() for row in self.slices],
        }

    def sections(self) -> list[Section]:
        found = [_scores(self.scores), _classes(self.scores), _confusion(self.scores)]
        if self.calibration is not None:
            found.append(_calibration(self.calibration))
        found.append(_mistakes(self.mistakes))
        return [*found, _slices(self.slices)] if self.slices else found


def _scores(scores: Report) -> Section:
    low, high = scores.interval
    summary = [(f"{scores.accuracy:.1%}", f"accuracy, {low:.1%} to {high:.1%} with 95% confidence")]
    if scores.top5 is not None:
        summary.append((f"{scores.top5:.1%}", "true class among the five most probable"))
    summary.append((f"{scores.macro_f1:.3f}", "mean F1 of the classes"))
    summary.append((f"{scores.num_examples}", "images"))
    return Section("summary", "Is it good?", [html_page.numbers(summary)])


def _classes(scores: Report) -> Section:
    head = ["class", "precision", "recall", "F1", "images"]
    rows = [
        [shorten(r.name), f"{r.precision:.3f}", f"{r.recall:.3f}", f"{r.f1:.3f}", str(r.support)]
        for r in scores.per_class
    ]
    note = html_page.paragraph(
        "Precision: of the images that it gives this class, the share that is right. Recall: "
        "of the images of this class, the share that it finds.",
        note=True,
    )
    table = html_page.table(head, rows)
    return Section("classes", "How good is it on each class?", [table, note])


def _confusion(scores: Report) -> Section:
    parts = [html_page.drawing(to_svg(confusion_matrix(scores), "confusion matrix"))]
    if pairs := _confused(scores):
        parts.append(html_page.table(["true class", "taken for", "times", "of its images"], pairs))
    return Section("confusion", "Which classes does it take for one another?", parts)


def _confused(scores: Report) -> list[list[str]]:
    cells = scores.confused
    cells = cells[cells[:, 0] != cells[:, 1]]
    pairs = []
    for row, column, times in cells[(-cells[:, 2]).argsort(kind="stable")[:_MOST_PAIRS]].tolist():
        true, taken = scores.per_class[row], scores.per_class[column]
        share = f"{times / true.support:.1%}"
        pairs.append([shorten(true.name), shorten(taken.name), str(times), share])
    return pairs


def _calibration(calibration: Calibration) -> Section:
    before, after = calibration.before.error, calibration.after.error
    temperature = calibration.temperature
    what = "too sure" if temperature > 1.02 else "not sure enough"
    what = "about as sure as it should be" if 0.98 <= temperature <= 1.02 else what
    drawing = html_page.drawing(to_svg(reliability_diagram(calibration), "reliability diagram"))
    text = html_page.paragraph(
        f"On average its confidence is {before:.3f} away from how often it is right (expected "
        f"calibration error, 15 bins). The temperature that fits best is {temperature:.2f}: as "
        f"it is, the model is {what}. With temperatures fitted on the other half of the images "
        f"the error is {after:.3f}. A temperature changes no answer."
    )
    return Section("calibration", "Can its confidence be trusted?", [drawing, text])


def _mistakes(mistakes: Sequence[Mistake]) -> Section:
    title = "What is it most sure about, and wrong?"
    if not mistakes:
        nothing = html_page.paragraph("Nothing: every answer is right.")
        return Section("mistakes", title, [nothing])
    items = []
    for mistake in mistakes:
        images = [mistake.pixels, *([] if mistake.explained is None else [mistake.explained])]
        answer = f"{mistake.true}, not {mistake.predicted} ({mistake.confidence:.0%})"
        items.append((images, f"{answer}: {mistake.name}"))
    parts = [html_page.pictures(items)]
    if mistakes[0].explained is not None:
        parts.append(
            html_page.paragraph(
                "Below each image: what counted for the class it was given, by gradient-weighted "
                "attention rollout; red most, blue least.",
                note=True,
            )
        )
    return Section("mistakes", title, parts)


def _slices(slices: Sequence[Slice]) -> Section:
    head = ["images with", "accuracy", "95% interval", "images"]
    rows = [
        [
            f"{row.column}: {row.value or '(empty)'}", f"{row.accuracy:.3f}",
            f"{row.interval[0]:.3f} to {row.interval[1]:.3f}", str(row.images),
        ]
        for row in slices
    ]  # fmt: skip
    return Section("slices", "Is it as good on every part?", [html_page.table(head, rows)])


def _calibration_json(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None

    def reliability(found: Any) -> dict[str, Any]:
        filled = found.counts > 0
        return {
            "expected_calibration_error": found.error,
            "counts": found.counts.tolist(),
            "confidence": np.where(filled, found.confidence, 0).tolist(),
            "accuracy": np.where(filled, found.accuracy, 0).tolist(),
        }

    return {
        "temperature": calibration.temperature,
        "before": reliability(calibration.before),
        "after": reliability(calibration.after),
    }
