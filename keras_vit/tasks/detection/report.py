"""Scores of detection, average precision as defined by COCO, at the images' original size.

Letters: N images; M objects; K classes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.arguments import require_package, text_table
from keras_vit.tasks.dense import json_rows, score_cells

SHOWN_SCORE = 0.3  # of boxes that are drawn, and counted as false alarms
_MIN_IOU = 0.5  # lowest IoU of an object that is detected
_AREAS = ("all", "small", "medium", "large")


class ClassScores(NamedTuple):
    """Average precision of one class, in [0, 1], NaN without objects; and its objects."""

    name: str
    ap50: float
    ap75: float
    ap: float
    objects: int


@dataclasses.dataclass(frozen=True, eq=False)
class DetectionReport:
    """Evaluation result of a detector.

    Args:
        names: Names of the classes.
        precision: Precision at 10 IoU thresholds from 0.5 to 0.95 and 101 recalls, of each class
            and for objects of all, small, medium and large areas, (10, 101, K, 4); -1 without
            objects.
        counts: Objects of each class (K,).
        errors: Missed objects and false alarms of each image, (N, 2).

    Examples:
        >>> true, predicted = np.array([[0, 0, 9, 9, 0, 0]]), np.array([[0, 0, 9, 8, 0.9, 0]])
        >>> report = DetectionReport.of(["car"], [(true, predicted)])
        >>> round(report.ap50, 3), round(report.ap, 3)
        (1.0, 0.8)

    Reference: https://cocodataset.org/#detection-eval
    """

    names: Sequence[str]
    precision: np.ndarray
    counts: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(cls, names: Sequence[str], pairs: Iterable[Any]) -> DetectionReport:
        """Computes the scores from pairs of true objects (M, 6) and of predicted objects (M, 6).

        True objects are rows of `data.boxes.Objects`, predicted ones are those of `found_objects`.
        """
        require_pycocotools()
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        true: list[dict[str, Any]] = []
        detected: list[dict[str, Any]] = []
        errors = []
        for index, (objects, predicted) in enumerate(pairs):
            true += [_annotation(index, row, row[4], iscrowd=int(row[5])) for row in objects]
            detected += [_annotation(index, row, row[5], score=row[4]) for row in predicted]
            errors.append(errors_of(objects, predicted))
        coco = {
            "images": [{"id": index} for index in range(len(errors))],
            "categories": [{"id": label} for label in range(len(names))],
        }
        with contextlib.redirect_stdout(None):
            datasets = []
            for annotations in (true, detected):
                numbered = [{**row, "id": number} for number, row in enumerate(annotations, 1)]
                datasets.append(COCO())
                datasets[-1].dataset = {**coco, "annotations": numbered}
                datasets[-1].createIndex()
            evaluation = COCOeval(*datasets, "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
        labels = [row["category_id"] for row in true if not row["iscrowd"]]
        precision = evaluation.eval["precision"][..., -1]  # of at most 100 boxes for each image
        counts = np.bincount(labels, minlength=len(names))
        return cls(names, precision, counts, np.array(errors).reshape(-1, 2))

    def average(self, threshold: int | None = None, area: int = 0) -> np.ndarray:
        """Returns the average precision of each class (K,), NaN without objects.

        Args:
            threshold: Index of the IoU threshold; None for the mean of all.
            area: Index of the objects' area: all, small, medium or large.
        """
        thresholds = slice(None) if threshold is None else slice(threshold, threshold + 1)
        means = self.precision[thresholds, ..., area].mean(axis=(0, 1))
        return np.where(means < 0, np.nan, means)

    @property
    def per_class(self) -> list[ClassScores]:
        """Scores of each class."""
        columns = (self.average(0), self.average(5), self.average(), self.counts)
        return list(map(ClassScores, self.names, *(column.tolist() for column in columns)))

    @property
    def ap50(self) -> float:
        """Mean average precision at an IoU of 0.5."""
        return _mean(self.average(0))

    @property
    def ap75(self) -> float:
        """Mean average precision at an IoU of 0.75."""
        return _mean(self.average(5))

    @property
    def ap(self) -> float:
        """Mean average precision over the IoU thresholds from 0.5 to 0.95."""
        return _mean(self.average())

    @property
    def worst(self) -> np.ndarray:
        """Indices of the images (N,), those with the most errors first."""
        return np.argsort(-self.errors.sum(axis=1), kind="stable")

    @property
    def by_area(self) -> dict[str, float]:
        """Mean average precision for small, medium and large objects, if there are any."""
        means = {name: _mean(self.average(area=i)) for i, name in enumerate(_AREAS) if i}
        return {name: ap for name, ap in means.items() if ap == ap}

    def table(self) -> list[list[str]]:
        """Returns the scores of the classes as the cells of a table, below its header."""
        return [["class", "AP50", "AP75", "AP", "objects"], *score_cells(self.per_class)]

    def text(self) -> str:
        """Formats the result as a table."""
        missed, alarms = self.errors.sum(axis=0)
        sizes = ", ".join(f"{name} {ap:.3f}" for name, ap in self.by_area.items())
        summary = (
            f"{len(self.errors)} images, AP50 {self.ap50:.4f}, AP75 {self.ap75:.4f}, AP "
            f"{self.ap:.4f} ({sizes}); with scores above {SHOWN_SCORE}: {missed} of "
            f"{self.counts.sum()} objects missed, {alarms} false alarms"
        )
        return "\n".join([summary, *text_table(self.table(), "<>>>>")])

    def to_json(self) -> dict[str, Any]:
        """Returns the result as a dictionary; scores of absent classes are None."""
        return {
            "num_examples": len(self.errors),
            **{"ap50": self.ap50, "ap75": self.ap75, "ap": self.ap},
            **{f"ap_{name}": ap for name, ap in self.by_area.items()},
            "per_class": json_rows(self.per_class),
        }


def _annotation(image: int, row: Any, label: float, **further: Any) -> dict[str, Any]:
    box = _as_coco(row)
    fields = {"image_id": image, "category_id": int(label), "bbox": box, "area": box[2] * box[3]}
    return {**fields, "iscrowd": 0, **further}


def _as_coco(row: Any) -> list[float]:
    """Returns the first column, first row, width and height of a box."""
    top, left, bottom, right = map(float, row[:4])
    return [left, top, right - left, bottom - top]


def errors_of(objects: np.ndarray, predicted: np.ndarray) -> tuple[int, int]:
    """Returns the number of missed objects and of false alarms of an image; crowds are neither."""
    from pycocotools import mask

    crowd = objects[:, 5] > 0
    missed, alarms = ~crowd, 0
    predicted = predicted[predicted[:, 4] >= SHOWN_SCORE]
    predicted = predicted[np.argsort(-predicted[:, 4], kind="stable")]
    if not len(predicted) or not len(objects):
        return int(missed.sum()), len(predicted)
    boxes = [list(map(_as_coco, rows)) for rows in (predicted, objects)]
    ious = np.asarray(mask.iou(*boxes, crowd.tolist()))  # of a crowd: the fraction inside
    overlaps = np.where(predicted[:, 5:6] == objects[:, 4], ious, 0) >= _MIN_IOU
    for row, found in zip(ious, overlaps, strict=True):
        if (found & missed).any():
            missed[np.where(found & missed, row, 0).argmax()] = False
        else:
            alarms += not (found & crowd).any()
    return int(missed.sum()), alarms


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def require_pycocotools() -> None:
    """Raises `ImportError` unless pycocotools is installed."""
    require_package("pycocotools", "coco", "Average precision needs pycocotools")
