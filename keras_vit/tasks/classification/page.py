"""Sections of a classifier's HTML evaluation page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.evaluation.slices import Slice
from keras_vit.tasks.classification.calibration import Calibration, Reliability
from keras_vit.tasks.classification.figures import confusion_matrix, reliability_diagram
from keras_vit.tasks.classification.metrics import Report, score_cells, shorten
from keras_vit.tasks.classification.mistakes import Mistake
from keras_vit.tasks.task import Details
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg
from keras_vit.visualization.html_page import Section


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationDetails(Details):
    """Detailed evaluation of a classifier: scores, calibration, mistakes and slices.

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
        """Returns all results, without the images, as a dictionary that can be stored as JSON."""
        fields = Mistake._fields[:4]
        return {
            "scores": self.scores.to_json(),
            "calibration": self.calibration
            and {
                "temperature": self.calibration.temperature,
                "before": _reliability_json(self.calibration.before),
                "after": _reliability_json(self.calibration.after),
            },
            "mistakes": [dict(zip(fields, row, strict=False)) for row in self.mistakes],
            "slices": [row._asdict() for row in self.slices],
        }

    def sections(self) -> list[Section]:
        scores, (low, high) = self.scores, self.scores.interval
        summary = [(f"{scores.accuracy:.1%}", f"accuracy (95% interval {low:.1%} to {high:.1%})")]
        if scores.top5 is not None:
            summary.append((f"{scores.top5:.1%}", "top-5 accuracy"))
        summary += [(f"{scores.macro_f1:.3f}", "macro F1"), (f"{scores.num_examples}", "images")]
        head = ["class", "precision", "recall", "F1", "images"]
        table = html_page.table(head, score_cells(scores.per_class))
        note = html_page.paragraph(
            "Precision: fraction of the predictions of this class that are correct. Recall: "
            "fraction of the images of this class that are predicted as this class.",
            note=True,
        )
        drawing = html_page.drawing(to_svg(confusion_matrix(scores), "confusion matrix"))
        names = [shorten(row.name) for row in scores.per_class]
        support = [row.support for row in scores.per_class]
        confused = html_page.confused(scores.confused, names, support, "images")
        sections = [
            Section("summary", "Overall results", [html_page.numbers(summary)]),
            Section("classes", "Results for each class", [table, note]),
            Section("confusion", "Confused classes", [drawing, confused]),
        ]
        if self.calibration is not None:
            sections.append(_calibration(self.calibration))
        sections.append(_mistakes(self.mistakes))
        head = ["images with", "accuracy", "95% interval", "images"]
        rows = [
            [f"{name}: {value or '(empty)'}", f"{accuracy:.3f}", f"{low:.3f} to {high:.3f}", str(n)]
            for name, value, n, accuracy, (low, high) in self.slices
        ]
        if rows:
            sections.append(Section("slices", "Results on subsets", [html_page.table(head, rows)]))
        return sections


def _calibration(calibration: Calibration) -> Section:
    temperature = calibration.temperature
    if temperature is None:
        result = (
            "No temperature is fitted: the cross-entropy has no minimum between 1/20 and 20, as "
            "is the case if every prediction is correct."
        )
    else:
        verdict = "overconfident" if temperature > 1.02 else "underconfident"
        verdict = "well calibrated" if 0.98 <= temperature <= 1.02 else verdict
        result = (
            f"The best temperature is {temperature:.2f}; without it, the model is {verdict}. With "
            "temperatures fitted on the other half of the images the error is "
            f"{calibration.after.error:.3f}. A temperature does not change predicted classes."
        )
    drawing = html_page.drawing(to_svg(reliability_diagram(calibration), "reliability diagram"))
    text = html_page.paragraph(
        "The expected calibration error, the mean difference of confidence and accuracy, is "
        f"{calibration.before.error:.3f} (15 bins). {result}"
    )
    return Section("calibration", "Calibration", [drawing, text])


def _mistakes(mistakes: Sequence[Mistake]) -> Section:
    items = []
    for mistake in mistakes:
        images = [mistake.pixels, *([] if mistake.explained is None else [mistake.explained])]
        caption = f"{mistake.true}, predicted as {mistake.predicted} ({mistake.confidence:.0%})"
        items.append((images, f"{caption}: {mistake.name}"))
    no_mistakes = html_page.paragraph("None: every prediction is correct.")
    parts = [html_page.pictures(items) if items else no_mistakes]
    if mistakes and mistakes[0].explained is not None:
        parts.append(
            html_page.paragraph(
                "Below each image: the relevance map of the predicted class, computed with "
                "gradient-weighted attention rollout, from blue (low) to red (high).",
                note=True,
            )
        )
    return Section("mistakes", "Most confident mistakes", parts)


def _reliability_json(reliability: Reliability) -> dict[str, Any]:
    return {
        "expected_calibration_error": reliability.error,
        "counts": reliability.counts.tolist(),
        "confidence": np.nan_to_num(reliability.confidence).tolist(),
        "accuracy": np.nan_to_num(reliability.accuracy).tolist(),
    }
