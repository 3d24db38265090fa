"""Sections of a multi-label classifier's HTML evaluation page."""

from __future__ import annotations

from keras_vit.tasks.classification.metrics import shorten
from keras_vit.tasks.multi_label.figures import label_scores
from keras_vit.tasks.multi_label.metrics import MultiLabelReport
from keras_vit.tasks.task import Details
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg


class MultiLabelDetails(Details):
    """Detailed evaluation of a multi-label classifier."""

    def sections(self) -> list[html_page.Section]:
        return [_summary(self.scores), _labels(self.scores)]


def _summary(scores: MultiLabelReport) -> html_page.Section:
    mean = scores.mean_average_precision
    summary = [
        ("-" if mean is None else f"{mean:.3f}", "mean average precision"),
        (f"{scores.micro_f1:.3f}", "micro F1"),
        (f"{scores.macro_f1:.3f}", "macro F1"),
        (f"{scores.subset_accuracy:.1%}", "images with all labels correct"),
        (f"{scores.num_examples}", "images"),
    ]
    return html_page.Section("summary", "Overall results", [html_page.numbers(summary)])


def _labels(scores: MultiLabelReport) -> html_page.Section:
    rows = [
        [
            shorten(r.name), f"{r.precision:.3f}", f"{r.recall:.3f}", f"{r.f1:.3f}",
            "-" if r.average_precision is None else f"{r.average_precision:.3f}",
            str(r.support), f"{r.threshold:.3f}",
        ]
        for r in scores.per_label
    ]  # fmt: skip
    head = ["label", "precision", "recall", "F1", "average precision", "images", "threshold"]
    drawing = html_page.drawing(to_svg(label_scores(scores), "scores for each label"))
    parts = [html_page.table(head, rows), drawing]
    return html_page.Section("classes", "Results for each label", parts)
