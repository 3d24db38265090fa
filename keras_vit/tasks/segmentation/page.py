"""Sections of a segmentation's HTML evaluation page."""

from __future__ import annotations

import numpy as np

from keras_vit.tasks.dense import DenseDetails
from keras_vit.tasks.segmentation.figures import class_scores
from keras_vit.tasks.segmentation.report import SegmentationReport
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import shorten, to_svg
from keras_vit.visualization.html_page import Section


class SegmentationDetails(DenseDetails):
    """Scores, confused classes and the images with the lowest mean IoU."""

    def sections(self) -> list[Section]:
        scores: SegmentationReport = self.scores
        low, high = scores.interval
        summary = [
            (f"{scores.mean_iou:.1%}", f"mean IoU (95% interval {low:.1%} to {high:.1%})"),
            (f"{scores.pixel_accuracy:.1%}", "pixel accuracy"),
            (f"{scores.boundary_f1:.3f}", "boundary F1"),
            (f"{len(scores.counts)}", "images"),
        ]
        head, *rows = scores.table()
        drawing = html_page.drawing(to_svg(class_scores(scores), "IoU of each class"))
        counts, names = scores.confusion, [shorten(name) for name in scores.names]
        cells = np.column_stack([*np.nonzero(counts), counts[counts != 0]])
        confused = html_page.confused(cells, names, counts.sum(axis=1), "pixels")
        note = html_page.paragraph("At the left the mask, at the right the prediction.", note=True)
        worst = [note, html_page.pictures(self.pictures)]
        return [
            Section("summary", "Overall results", [html_page.numbers(summary)]),
            Section("classes", "Results for each class", [html_page.table(head, rows), drawing]),
            Section("confusion", "Confused classes", [confused]),
            Section("worst", "Images with the lowest mean IoU", worst),
        ]
