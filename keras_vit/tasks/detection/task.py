"""Detection task."""

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
from keras_vit.tasks.dense import DenseTask, with_image_size
from keras_vit.tasks.detection import figures
from keras_vit.tasks.detection.assignment import overlaps
from keras_vit.tasks.detection.objective import DetectionObjective
from keras_vit.tasks.detection.page import DetectionDetails
from keras_vit.tasks.detection.prediction import DetectionPrediction, ObjectTable, found_objects
from keras_vit.tasks.detection.report import SHOWN_SCORE, DetectionReport, require_pycocotools
from keras_vit.tasks.detection.serving_graph import ServedDetection
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.task import Task
from keras_vit.visualization.drawing import save_figure

_MIN_IOU = 0.99  # IoU of the boxes of a cell
_MAX_SIDE = 416  # pixels of the longer side, by default


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
