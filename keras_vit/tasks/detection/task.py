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
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import build_encoder
from keras_vit.tasks.dense import DenseTask, sheet, some, upright_pixels, with_image_size
from keras_vit.tasks.detection import figures
from keras_vit.tasks.detection.assignment import overlaps
from keras_vit.tasks.detection.objective import DetectionObjective
from keras_vit.tasks.detection.page import DetectionDetails
from keras_vit.tasks.detection.prediction import DetectionPrediction, ObjectTable, found_objects
from keras_vit.tasks.detection.report import DetectionReport, require_pycocotools
from keras_vit.tasks.detection.serving_graph import ServedDetection
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.task import Evaluation, Task
from keras_vit.visualization.drawing import save_figure

_AGREEING = 0.99  # IoU of the boxes of a cell
_LARGEST = 416  # pixels of the longer side, by default


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
    prediction = staticmethod(DetectionPrediction.of)

    @classmethod
    def check_model(cls, name: str) -> None:
        require_pycocotools()  # before a long run
        zoo.require_name(name)

    @classmethod
    def settled(cls, config: RunConfig, examples: data.Examples) -> Task:
        """Returns the task with the whole image seen, by default at the size of the images.

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
        return cls(with_image_size(config, lambda: sides, _LARGEST, steps))

    def draw_batch(
        self, images: np.ndarray, targets: Any, names: Sequence[str], path: Path
    ) -> None:
        pairs = zip(images, np.asarray(targets), strict=True)
        save_figure(sheet([figures.objects_on(*pair, names) for pair in pairs]), path)

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build_encoder(self.config, dtype, examples.class_names, pooling="none")
        return detector_logits(encoder, len(examples.class_names), name=encoder.name, dtype=dtype)

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        return DetectionObjective(network)

    def inference_model(self, network: keras.Model) -> keras.Model:
        return with_scores(cloning.with_dtype(network, "float32"))

    def pair(self, target: Any, output: np.ndarray, preprocessing: Preprocessing) -> tuple:
        """Returns the objects of an image and those that are found."""
        rows, sides = target
        return rows, found_objects(output, preprocessing, sides)

    def measure(self, pairs: Iterable[tuple], channels: int) -> float:
        """Returns the average precision."""
        return DetectionReport.of([""] * (channels - 4), pairs).ap

    def agree(self, found: np.ndarray, expected: np.ndarray, close: float) -> np.ndarray:
        """Returns whether the boxes and the scores of all cells of each image agree."""
        ious = np.asarray(overlaps(found[..., :4], expected[..., :4])[0])
        differences = np.abs(found - expected)[..., 4:].max(axis=(1, 2))
        return (ious.min(axis=1) >= _AGREEING) & (differences <= close)

    def draw_examples(
        self, examples: data.Examples, evaluation: Evaluation, folder: Path
    ) -> dict[str, Path]:
        shown, pairs = evaluation.found
        images = figures.truths_and_predictions(upright_pixels(shown), pairs, shown.class_names)
        titles = [title for name in shown.names for title in (Path(name).name, "prediction")]
        figure = sheet([image for pair in images for image in pair], titles)
        return {"worst": save_figure(figure, folder / "worst.png")}

    def start_run(self, run: RunFolder, examples: data.Examples, validation: data.Examples) -> None:
        shown = some(validation)
        pairs = zip(upright_pixels(shown), shown.targets, strict=True)
        images = [figures.objects_on(each, true.rows, shown.class_names) for each, true in pairs]
        save_figure(sheet(images), run.path / "boxes.png")

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        figure = figures.precision_recall(result)
        return {"precision_recall": save_figure(figure, folder / "precision_recall.png")}

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> ObjectTable:
        return ObjectTable(preprocessing)
