"""Detection task, and its HTML evaluation page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import data, zoo
from keras_vit.arguments import shortlist
from keras_vit.data.sources.boxes import load_boxes
from keras_vit.models import cloning
from keras_vit.models.detector import STRIDES, detector_logits, with_scores
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.tasks.build import build_encoder
from keras_vit.tasks.dense import DenseDetails, DenseTask, with_image_size
from keras_vit.tasks.detection import figures
from keras_vit.tasks.detection.assignment import overlaps
from keras_vit.tasks.detection.objective import DetectionObjective
from keras_vit.tasks.detection.prediction import DetectionPrediction, ObjectTable, found_objects
from keras_vit.tasks.detection.report import SHOWN_SCORE, DetectionReport, require_pycocotools
from keras_vit.tasks.detection.serving_graph import ServedDetection
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.task import Task
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import save_figure, to_svg
from keras_vit.visualization.html_page import Section

_MIN_IOU = 0.99  # IoU of the boxes of a cell
_MAX_SIDE = 416  # pixels of the longer side, by default


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
        curves = to_svg(figures.precision_recall(scores), "Precision and recall of each class")
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


class Detection(DenseTask):
    """Detection task: the box and the class of each object in an image."""

    name = "detection"
    monitor = ("loss", "min")
    recipe = "detection"
    output = "objects"
    pipeline_tag = "object-detection"
    served_model = ServedDetection
    compared_signature = "cells"
    load = staticmethod(load_boxes)
    report_kind = DetectionReport
    details_kind = DetectionDetails
    targets_file = "boxes.png"
    new_layers = ("adapter_*", "level_*", "boxes_*", "scores_*")
    unused_fields = (*Task.unused_fields, "class_weights", "loss")
    prediction = staticmethod(DetectionPrediction.of)
    draw_target = staticmethod(figures.objects_on)

    @classmethod
    def check_model(cls, name: str) -> None:
        require_pycocotools()  # before a long run
        zoo.require_name(name)

    @classmethod
    def settled(cls, config: RunConfig, examples: data.Examples) -> Task:
        """Returns the task, which resizes whole images, by default to the size of the images.

        Boxes that cannot be used are refused if the setting `on_bad_box` is `"fail"`.
        """
        dropped = getattr(examples.kind, "dropped", ())
        if dropped and config.settings.get("on_bad_box") == "fail":
            raise ValueError(
                "`data` must have boxes with an area, in their images and of known classes "
                "(--on-bad-box drop leaves the others out). Received: "
                f"{shortlist(dropped, shown=20)}"
            )
        patch = zoo.constructor(config.model).config.stride
        steps = [math.lcm(STRIDES[-1], step) for step in patch]
        sides = [target.sides for target in examples.targets]
        return cls(with_image_size(config, lambda: sides, _MAX_SIDE, steps))

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build_encoder(self.config, dtype, examples.class_names, pooling="none")
        return detector_logits(encoder, len(examples.class_names), name=encoder.name, dtype=dtype)

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        return DetectionObjective(network)

    def inference_model(self, network: keras.Model) -> keras.Model:
        return with_scores(cloning.with_dtype(network, "float32"))

    def pair(self, target: Any, output: np.ndarray, preprocessing: Preprocessing) -> tuple:
        """Returns the true and the predicted objects of an image."""
        rows, sides = target
        return rows, found_objects(output, preprocessing, sides)

    def measure(self, pairs: Iterable[tuple], channels: int) -> float:
        """Returns the average precision."""
        return DetectionReport.of([""] * (channels - 4), pairs).ap

    def agree(self, found: np.ndarray, expected: np.ndarray, close: float) -> np.ndarray:
        """Returns whether the boxes and the scores of all cells of each image agree."""
        ious = np.asarray(overlaps(found[..., :4], expected[..., :4])[0])
        differences = np.abs(found - expected)[..., 4:].max(axis=(1, 2))
        return (ious.min(axis=1) >= _MIN_IOU) & (differences <= close)

    def draw_found(self, image: np.ndarray, found: Any, names: Sequence[str]) -> np.ndarray:
        shown = found[found[:, 4] >= SHOWN_SCORE]
        return figures.boxes_on(image, shown, shown[:, 5], names)

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        figure = figures.precision_recall(result)
        return {"precision_recall": save_figure(figure, folder / "precision_recall.png")}

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> ObjectTable:
        return ObjectTable(preprocessing)
