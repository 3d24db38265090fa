"""Sections of a detector's HTML evaluation page."""

from __future__ import annotations

from keras_vit.tasks.dense import DenseDetails
from keras_vit.tasks.detection.figures import precision_recall
from keras_vit.tasks.detection.report import SHOWN_SCORE, DetectionReport
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import to_svg
from keras_vit.visualization.html_page import Section


class DetectionDetails(DenseDetails):
    """Scores and the images with the most errors."""

    def sections(self) -> list[Section]:
        scores: DetectionReport = self.scores
        missed, alarms = scores.errors.sum(axis=0)
        summary = [
            (f"{scores.ap50:.3f}", "AP50"),
            (f"{scores.ap75:.3f}", "AP75"),
            (f"{scores.ap:.3f}", "AP"),
            (f"{missed}", f"missed of {scores.counts.sum()} objects"),
            (f"{alarms}", "false alarms"),
            (f"{len(scores.errors)}", "images"),
        ]
        head, *rows = scores.table()
        sizes = [[name, f"{ap:.3f}"] for name, ap in scores.by_area.items()]
        curves = to_svg(precision_recall(scores), "Precision and recall of each class")
        classes = [html_page.table(head, rows), html_page.drawing(curves)]
        areas = "Objects are small below 32 x 32 pixels, and large from 96 x 96 pixels."
        by_size = [html_page.paragraph(areas), html_page.table(["objects", "AP"], sizes)]
        return [
            Section("summary", "Overall results", [html_page.numbers(summary)]),
            Section("classes", "Results for each class", classes),
            Section("sizes", "Results by size", by_size),
            Section("worst", "Images with the most errors", self._pictures()),
        ]

    def _pictures(self) -> list[str]:
        items = []
        errors = self.scores.errors[self.scores.worst]
        for (images, name), (missed, alarms) in zip(self.pictures, errors, strict=False):
            items.append((images, f"{name}: {missed} missed, {alarms} false alarms"))
        note = (
            "At the left the true objects, at the right those that are found, with scores of at "
            f"least {SHOWN_SCORE}."
        )
        return [html_page.paragraph(note, note=True), html_page.pictures(items)]
