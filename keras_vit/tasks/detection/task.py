"""Detection task."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
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
from keras_vit.tasks.dense import SHOWN, some, upright_pixels, with_image_size
from keras_vit.tasks.detection import figures
from keras_vit.tasks.detection.assignment import overlaps
from keras_vit.tasks.detection.objective import DetectionObjective
from keras_vit.tasks.detection.page import DetectionDetails
from keras_vit.tasks.detection.prediction import DetectionPrediction, ObjectTable, found_objects
from keras_vit.tasks.detection.report import DetectionReport, require_pycocotools
from keras_vit.tasks.detection.serving_graph import ServedDetection
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.task import Evaluation, Predictions, Task, output_batches
from keras_vit.visualization.drawing import save_figure

_AGREEING = 0.99  # IoU of the boxes of a cell
_LOST = 0.005  # of the average precision, by quantization or reduced precision
_LARGEST = 416  # pixels of the longer side, by default


class Detection(Task):
    """Detection task: the box and the class of each object in an image."""

    name = "detection"
    monitor = ("loss", "min")
    recipe = "detection"
    output = "objects"
    pipeline_tag = "object-detection"
    served_model = ServedDetection
    compared_signature = "cells"
    config: RunConfig

    @classmethod
    def check_model(cls, name: str) -> None:
        require_pycocotools()  # before a long run
        zoo.constructor(name)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> data.Examples:
        return load_boxes(source)

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
        save_figure(figures.sheet([figures.objects_on(*pair, names) for pair in pairs]), path)

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build_encoder(self.config, dtype, examples.class_names, pooling="none")
        return detector_logits(encoder, len(examples.class_names), name=encoder.name, dtype=dtype)

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        return DetectionObjective(network)

    def inference_model(self, network: keras.Model) -> keras.Model:
        return with_scores(cloning.with_dtype(network, "float32"))

    def pairs(
        self, model: keras.Model, examples: data.Examples, batch_size: int = 32, verbose: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the objects of each image and those that are found, in its own pixels."""
        network, preprocessing = self.prediction_network(model)
        for indices, outputs in output_batches(
            network, preprocessing, examples, batch_size, verbose
        ):
            for index, output in zip(indices, outputs, strict=True):
                rows, sides = examples.targets[index]
                yield rows, found_objects(output, preprocessing, sides)

    def evaluate(
        self,
        model: keras.Model,
        examples: data.Examples,
        *,
        batch_size: int = 32,
        verbose: int = 0,
    ) -> Evaluation:
        pairs = list(self.pairs(model, examples, batch_size, verbose))
        report = DetectionReport.of(examples.class_names, pairs)
        worst = np.argsort(-report.errors.sum(axis=1), kind="stable")[:SHOWN]
        return Evaluation(report, (examples.subset(worst), [pairs[index] for index in worst]))

    def details(
        self, model: keras.Model, examples: data.Examples, evaluation: Evaluation
    ) -> DetectionDetails:
        shown, pairs = evaluation.found
        return DetectionDetails(evaluation.result, upright_pixels(shown), pairs, shown.names)

    def draw_examples(
        self, examples: data.Examples, evaluation: Evaluation, folder: Path
    ) -> dict[str, Path]:
        shown, pairs = evaluation.found
        images = figures.truths_and_predictions(upright_pixels(shown), pairs, shown.class_names)
        titles = [title for name in shown.names for title in (Path(name).name, "prediction")]
        figure = figures.sheet([image for pair in images for image in pair], titles)
        return {"worst": save_figure(figure, folder / "worst.png")}

    def start_run(self, run: RunFolder, examples: data.Examples, validation: data.Examples) -> None:
        shown = some(validation)
        pairs = zip(upright_pixels(shown), shown.targets, strict=True)
        images = [figures.objects_on(each, true.rows, shown.class_names) for each, true in pairs]
        save_figure(figures.sheet(images), run.path / "boxes.png")

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        figure = figures.precision_recall(result)
        return {"precision_recall": save_figure(figure, folder / "precision_recall.png")}

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        """Compares an exported file with the Keras model (see `Task.agreement`).

        In float32, images agree if the boxes and the scores of all cells do; smaller files agree
        on all images or on none, by their average precision, which is returned as accuracy.
        """
        reads = expected.preprocessing

        def average_precision(outputs: np.ndarray) -> float:
            pairs = zip(expected.targets, outputs, strict=True)
            objects = ((true.rows, found_objects(each, reads, true.sides)) for true, each in pairs)
            return DetectionReport.of(reads.class_names or (), objects).ap

        score = average_precision(found)
        if close:
            ious = overlaps(found[..., :4], expected.outputs[..., :4])[0]
            differences = np.abs(found - expected.outputs)[..., 4:].max(axis=(1, 2))
            same = (np.asarray(ious).min(axis=1) >= _AGREEING) & (differences <= close)
            return same, score
        agreeing = abs(average_precision(expected.outputs) - score) <= _LOST
        return np.full(len(found), agreeing), score

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> DetectionPrediction:
        return DetectionPrediction.of(output, preprocessing, message)

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> ObjectTable:
        return ObjectTable(preprocessing)
