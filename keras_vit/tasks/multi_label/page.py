"""Sections of a multi-label classifier's HTML evaluation page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.tasks.classification.metrics import decimal, score_cells
from keras_vit.tasks.multi_label.figures import label_scores
from keras_vit.tasks.multi_label.metrics import MultiLabelReport
from keras_vit.tasks.task import Details
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg
from keras_vit.visualization.html_page import Section


@dataclasses.dataclass(frozen=True, eq=False)
class MultiLabelDetails(Details):
    """Detailed evaluation of a multi-label classifier: scores and slices.

    Args:
        scores: Average precision, F1 and per-label scores.
        slices: Scores for each column of the data and value.
    """

    scores: MultiLabelReport
    slices: Mapping[tuple[str, str], MultiLabelReport] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        slices = [{"column": c, "value": v, **r.to_json()} for (c, v), r in self.slices.items()]
        return {**super().to_json(), "slices": slices}

    def sections(self) -> list[Section]:
        scores = self.scores
        summary = [
            (decimal(scores.mean_average_precision, 3), "mean average precision"),
            (f"{scores.micro_f1:.3f}", "micro F1"),
            (f"{scores.macro_f1:.3f}", "macro F1"),
            (f"{scores.subset_accuracy:.1%}", "images with all labels correct"),
            (f"{scores.num_examples}", "images"),
        ]
        head = ["label", "precision", "recall", "F1", "average precision", "images", "threshold"]
        table = html_page.table(head, score_cells(scores.per_label))
        drawing = html_page.drawing(to_svg(label_scores(scores), "scores for each label"))
        sections = [
            Section("summary", "Overall results", [html_page.numbers(summary)]),
            Section("classes", "Results for each label", [table, drawing]),
        ]
        head = ["images with", "mean average precision", "micro F1", "all labels correct", "images"]
        rows = [
            [
                f"{column}: {value or '(empty)'}", decimal(r.mean_average_precision, 3),
                f"{r.micro_f1:.3f}", f"{r.subset_accuracy:.1%}", str(r.num_examples),
            ]
            for (column, value), r in self.slices.items()
        ]  # fmt: skip
        if rows:
            sections.append(Section("slices", "Results on subsets", [html_page.table(head, rows)]))
        return sections
