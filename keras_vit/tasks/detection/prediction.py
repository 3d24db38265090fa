"""Prediction for one image: the objects in it.

Letters: M objects; A cells; K classes; H, W height and width of the image.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from keras_vit.data.geometry import centered_geometry, uncut_boxes
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.dense import PictureTable
from keras_vit.tasks.detection.figures import boxes_on
from keras_vit.tasks.detection.report import SHOWN_SCORE
from keras_vit.tasks.task import Prediction

MAX_OBJECTS = 300  # objects of an image
MAX_CANDIDATES = 1000  # cells with the highest scores
MAX_OVERLAP = 0.5  # IoU of two boxes of a class, of which one is suppressed

Sides = tuple[int, int]


def found_objects(output: np.ndarray, preprocessing: Preprocessing, sides: Sides) -> np.ndarray:
    """Returns the objects (M, 6) in an image of `sides` (H, W), those with high scores first.

    Args:
        output: Boxes and scores of the model (A, 4 + K).
        preprocessing: Preprocessing of the model.
        sides: Height and width of the upright image.

    Returns:
        Box (first row, first column, last row, last column, in pixels), score and class.
    """
    scores, labels = output[:, 4:].max(axis=1), output[:, 4:].argmax(axis=1)
    order = np.argsort(-scores, kind="stable")[:MAX_CANDIDATES]
    order = order[suppressed(output[order, :4], labels[order])]
    geometry = centered_geometry(np.array(sides), preprocessing)
    boxes = uncut_boxes(output[order, :4], geometry, preprocessing.size)
    boxes = np.clip(boxes, 0, np.tile(sides, 2))
    return np.column_stack([boxes, scores[order], labels[order]]).astype(np.float32)


def suppressed(boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the indices of at most 300 of some boxes (A, 4), sorted by score, best first.

    Of boxes of one class with an IoU above 0.5, only the first is kept.
    """
    begin, end = boxes[:, :2], boxes[:, 2:]
    areas = np.prod(np.maximum(end - begin, 0), axis=1)
    selected: list[int] = []
    removed = np.zeros(len(boxes), bool)
    for index in range(len(boxes)):
        if removed[index] or len(selected) == MAX_OBJECTS:
            continue
        selected.append(index)
        sides = np.minimum(end, end[index]) - np.maximum(begin, begin[index])
        intersections = np.prod(np.maximum(sides, 0), axis=1)
        overlapping = intersections > MAX_OVERLAP * (areas + areas[index] - intersections)
        removed |= overlapping & (labels == labels[index])
    return np.array(selected, int)


@dataclasses.dataclass(frozen=True, eq=False)
class DetectionPrediction(Prediction):
    """Objects in one image, or the reason why it cannot be read.

    Args:
        names: Names of the classes.
        find: Function from the height and width of the upright image to its objects, see
            `found_objects`.
        message: Why the image could not be read; empty for a readable image.
    """

    names: Sequence[str]
    find: Callable[[Sides], np.ndarray]
    message: str = ""

    @classmethod
    def of(
        cls, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> DetectionPrediction:
        """Creates the prediction from boxes and scores of the model (A, 4 + K)."""
        find = functools.partial(found_objects, output, preprocessing)
        return cls(preprocessing.class_names or (), find, message)

    def objects(self, sides: Sides, least: float = SHOWN_SCORE) -> np.ndarray:
        """Returns the objects (M, 6) with scores of at least `least`, see `found_objects`."""
        objects = self.find(sides)
        return objects[objects[:, 4] >= least]

    def text(self, top: int = 3) -> str:
        """Returns the number of objects of each class as one line of text."""
        if self.message:
            return self.message
        labels = self.objects((1, 1))[:, 5].astype(int)
        counts = np.bincount(labels, minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")
        return ", ".join(f"{counts[k]} {self.names[k]}" for k in order if counts[k]) or "no objects"


def served_objects(response: Mapping[str, np.ndarray]) -> list[DetectionPrediction]:
    """Creates predictions from a server's response (see docs/serving.md)."""
    predictions = []
    for index, ok in enumerate(response["ok"]):
        boxes, scores, classes = (response[k][index] for k in ("boxes", "scores", "class_names"))
        names, labels = np.unique(np.asarray(classes).astype(str), return_inverse=True)
        rows = np.column_stack([boxes, scores, labels]).astype(np.float32)
        message = "" if ok else str(response["message"][index]) or "refused by the server"
        find = functools.partial(_objects_of_response, rows[rows[:, 4] > 0])
        predictions.append(DetectionPrediction(tuple(names.tolist()), find, message))
    return predictions


def _objects_of_response(rows: np.ndarray, sides: Sides) -> np.ndarray:
    return rows


class ObjectTable(PictureTable):
    """Table of objects, one row each, with pictures of the images and their boxes."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__(["class", "score", "left", "top", "right", "bottom"])
        self._preprocessing = preprocessing

    def rows(self, file: Any, found: DetectionPrediction) -> list[dict[str, Any]]:
        """Returns the rows of one image; one without objects has a row with its name alone."""
        empty = {**dict.fromkeys(self.columns), "file": str(file), "message": found.message or None}
        return [
            {**empty, "class": found.names[label], "score": score}
            | dict(zip(("top", "left", "bottom", "right"), box, strict=True))
            for *box, score, label in self._objects(file, found, SHOWN_SCORE)
        ] or [empty]

    @staticmethod
    def image_id(file: Any) -> int | str:
        """Returns the name of an image without suffix, as a number if it is one."""
        stem = Path(str(file)).stem
        return int(stem) if stem.isdecimal() else stem

    def coco_rows(self, file: Any, found: DetectionPrediction) -> list[dict[str, Any]]:
        """Returns the results of one image in the format of COCO, those of all scores.

        Classes count from 1.

        Reference: https://cocodataset.org/#format-results
        """
        return [
            {
                "image_id": self.image_id(file),
                "category_id": label + 1,
                "bbox": [left, top, right - left, bottom - top],
                "score": score,
            }
            for top, left, bottom, right, score, label in self._objects(file, found, 0)
        ]

    def pictures(self, file: Any, found: DetectionPrediction) -> dict[str, PIL.Image.Image]:
        """Returns the image with its boxes on it."""
        image = self.pixels_of(file, self._preprocessing)
        objects = found.objects(image.shape[:2])
        return {".jpg": PIL.Image.fromarray(boxes_on(image, objects, objects[:, 5], found.names))}

    def _objects(self, file: Any, found: DetectionPrediction, min_score: float) -> list[Any]:
        if not found.ok:
            return []
        sides = self.pixels_of(file, self._preprocessing).shape[:2]
        objects = found.objects(sides, min_score)
        return [[*row[:5], int(row[5])] for row in objects.astype(float).round(4).tolist()]
