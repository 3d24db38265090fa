"""Segmentation task, and its HTML evaluation page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import arguments, data, zoo
from keras_vit.data.class_maps import found_classes
from keras_vit.data.masks import Masks
from keras_vit.data.sources.coco import coco_files, load_coco
from keras_vit.data.sources.masks import load_masks
from keras_vit.models.dense import Segmenter
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.storage.paths import to_path
from keras_vit.tasks.build import build_encoder
from keras_vit.tasks.dense import DenseDetails, DenseTask, with_image_size
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.segmentation import figures
from keras_vit.tasks.segmentation.objective import SegmentationObjective
from keras_vit.tasks.segmentation.prediction import SegmentationPrediction, ShareTable
from keras_vit.tasks.segmentation.report import SegmentationReport, mean_iou
from keras_vit.tasks.segmentation.serving_graph import ServedSegmentation
from keras_vit.tasks.task import Task
from keras_vit.visualization import html_page
from keras_vit.visualization.drawing import save_figure, shorten, to_svg
from keras_vit.visualization.html_page import Section

_MIN_AGREEMENT = 0.999  # of the pixels of an image
_MAX_SIDE = 512  # pixels of the longer side, by default
_NUM_MASKS = 50  # masks


def masks_of(examples: data.Examples) -> Masks:
    """Returns the kind of a dataset's targets; raises `ValueError` unless they are masks."""
    if not isinstance(examples.kind, Masks):
        raise ValueError(
            "`data` must be images with masks, such as folders images/ and masks/, for the task "
            f"segmentation. Received: {examples.source}"
        )
    return examples.kind


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
        drawing = html_page.drawing(to_svg(figures.class_scores(scores), "IoU of each class"))
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


class Segmentation(DenseTask):
    """Segmentation task: a class for each pixel, from masks."""

    name = "segmentation"
    monitor = ("mean_iou", "max")
    recipe = "segmentation"
    output = "logits"
    pipeline_tag = "image-segmentation"
    served_model = ServedSegmentation
    compared_signature = "logits"
    measure = staticmethod(mean_iou)
    figure = staticmethod(figures.with_legend)
    report_kind = SegmentationReport
    details_kind = SegmentationDetails
    targets_file = "masks.png"
    new_layers = ("adapter_*", "head/*")
    check_model = staticmethod(zoo.require_name)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> data.Examples:
        return load_coco(source) if coco_files(to_path(source)) else load_masks(source)

    @classmethod
    def settled(cls, config: RunConfig, examples: data.Examples) -> Task:
        """Returns the task, which resizes whole images, by default to the size of the masks."""
        steps = zoo.constructor(config.model).config.stride
        return cls(with_image_size(config, lambda: _mask_sizes(examples), _MAX_SIDE, steps))

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build_encoder(self.config, dtype, examples.class_names, pooling="none")
        whole = Segmenter(encoder, len(examples.class_names), dtype=dtype)
        # Logits at a quarter of the size are interpolated once, to the size of each image.
        return keras.Model(whole.input, whole.get_layer("head").output, name=encoder.name)

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        loss = self.config.recipe.loss
        arguments.one_of("loss", loss, ("softmax", "softmax_dice"))
        weights = None
        if self.config.recipe.class_weights == "balanced":
            counts = masks_of(training).unit_counts(training)
            # https://arxiv.org/abs/1606.02147
            weights = (1 / np.log(1.02 + counts / counts.sum())).astype("float32")
        return SegmentationObjective(network, weights, dice=loss == "softmax_dice")

    def target(self, examples: data.Examples, index: int) -> np.ndarray:
        return masks_of(examples).read(examples.targets[index])

    def pair(self, target: Any, output: np.ndarray, preprocessing: Preprocessing) -> tuple:
        """Returns the mask and the predicted class of each pixel."""
        return target, found_classes(output, target.shape, preprocessing)

    def agree(self, found: np.ndarray, expected: np.ndarray, close: float) -> np.ndarray:
        """Returns whether most pixels of each image have the same class."""
        equal = found.argmax(axis=-1) == expected.argmax(axis=-1)
        return equal.reshape(len(equal), -1).mean(axis=1) >= _MIN_AGREEMENT

    def draw_target(self, image: np.ndarray, target: Any, names: Sequence[str]) -> np.ndarray:
        return figures.overlay(image, target, len(names))

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        return {"iou": save_figure(figures.class_scores(result), folder / "iou.png")}

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> SegmentationPrediction:
        return SegmentationPrediction(output, preprocessing, message)

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> ShareTable:
        return ShareTable(preprocessing.class_names or ())


def _mask_sizes(examples: data.Examples) -> list[tuple[int, ...]]:
    """Returns the height and width of the first masks that can be read."""
    sizes = []
    for target in examples.targets[:_NUM_MASKS]:
        with contextlib.suppress(ValueError, OSError):  # the audit names the file
            sizes.append(masks_of(examples).read(target).shape)
    if not sizes:
        raise ValueError(
            "`data` must contain masks that can be read; `keras-vit data check` names the reasons. "
            f"Received: {examples.source}"
        )
    return sizes
