"""Sections of the evaluation page of a multi-label classifier."""

from __future__ import annotations

from keras_vit.tasks.classification.metrics import shorten
from keras_vit.tasks.multi_label.figures import label_scores
from keras_vit.tasks.multi_label.metrics import MultiLabelReport
from keras_vit.tasks.task import Details
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg


class MultiLabelDetails(Details):
    """Evaluation details of a multi-label classifier."""

    def sections(self) -> list[html_page.Section]:
        return [_summary(self.scores), _labels(self.scores)]


def _summary(scores: MultiLabelReport) -> html_page.Section:
    mean = scores.mean_average_precision
    summary = [
        ("-" if mean is None else f"{mean:.3f}", "mean average precision"),
        (f"{scores.micro_f1:.3f}", "F1 of all decisions"),
        (f"{scores.macro_f1:.3f}", "mean F1 of the labels"),
        (f"{scores.subset_accuracy:.1%}", "images with every label right"),
        (f"{scores.num_examples}", "images"),
    ]
    return html_page.Section("summary", "Is it good?", [html_page.numbers(summary)])


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
    drawing = html_page.drawing(to_svg(label_scores(scores), "scores of the labels"))
    parts = [html_page.table(head, rows), drawing]
    return html_page.Section("classes", "How good is it on each label?", parts)
