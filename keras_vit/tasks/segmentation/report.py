"""Scores of segmentation, from counts of pixels at the images' original size.

Letters: N images; K classes; H, W height and width.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

from keras_vit.arguments import text_table
from keras_vit.data.masks import IGNORED
from keras_vit.tasks.dense import json_rows, score_cells

_TOLERANCE = 0.0075  # of a boundary, as a fraction of the image's diagonal
_REPEATS = 1000  # resamples of the bootstrap


class ClassScores(NamedTuple):
    """Scores of one class, in [0, 1], and its number of pixels; NaN if it does not occur."""

    name: str
    iou: float
    accuracy: float
    boundary_f1: float
    pixels: int


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentationReport:
    """Evaluation result of a segmentation.

    Args:
        names: Names of the classes.
        confusion: Pixels of each true class (rows) and predicted class, (K, K), int64. Pixels
            outside the model's input are wrong and in no column.
        counts: Pixels of each image, (N, 3, K): correct, of the class, predicted as the class.
        boundaries: For each image and class, (N, 2, K): precision and recall of its boundary,
            NaN if there is none.

    Examples:
        >>> true, predicted = np.array([[0, 0, 1, 255]]), np.array([[0, 1, 1, 1]])
        >>> report = SegmentationReport.of(["road", "car"], [(true, predicted)])
        >>> round(report.mean_iou, 3), report.confusion.tolist()
        (0.5, [[1, 1], [0, 1]])
    """

    names: Sequence[str]
    confusion: np.ndarray
    counts: np.ndarray
    boundaries: np.ndarray

    @classmethod
    def of(cls, names: Sequence[str], pairs: Any) -> SegmentationReport:
        """Computes the scores of pairs of true and predicted classes (H, W), one by one."""
        size, counts, boundaries = len(names), [], []
        confusion = np.zeros((size, size), np.int64)
        for true, predicted in pairs:
            image_confusion, image_counts = _pixels(true, predicted, size)
            confusion += image_confusion
            counts.append(image_counts)
            boundaries.append(_boundaries(true, predicted, size))
        return cls(names, confusion, np.array(counts), np.array(boundaries, np.float32))

    @functools.cached_property
    def per_class(self) -> list[ClassScores]:
        """Scores of each class."""
        correct, true = self.counts.sum(axis=0)[:2]
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = correct / true
            boundaries = 2 / (1 / _means(self.boundaries)).sum(axis=0)
        columns = (_ious(self.counts.sum(axis=0)), accuracy, boundaries, true)
        return list(map(ClassScores, self.names, *(column.tolist() for column in columns)))

    @property
    def mean_iou(self) -> float:
        """Mean intersection over union of the classes that occur."""
        return float(np.nanmean(_ious(self.counts.sum(axis=0))))

    @property
    def pixel_accuracy(self) -> float:
        """Fraction of the pixels with a class that are correct."""
        correct, true, _ = self.counts.sum(axis=(0, 2))
        return float(correct / max(true, 1))

    @property
    def boundary_f1(self) -> float:
        """Mean boundary F1 of the classes with boundaries; NaN if there are none."""
        scores = [row.boundary_f1 for row in self.per_class if row.boundary_f1 == row.boundary_f1]
        return float(np.mean(scores)) if scores else float("nan")

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mean IoU, by a bootstrap over the images."""
        rng, number = np.random.default_rng(0), len(self.counts)
        resamples = (rng.multinomial(number, np.full(number, 1 / number)) for _ in range(_REPEATS))
        means = [np.nanmean(_ious(np.tensordot(weights, self.counts, 1))) for weights in resamples]
        low, high = np.quantile(means, (0.025, 0.975))
        return float(low), float(high)

    @property
    def worst(self) -> np.ndarray:
        """Indices of the images (N,), those with the lowest mean IoU over their classes first."""
        ious = [_ious(each) for each in self.counts]
        return np.argsort([np.nanmean(each) if np.isfinite(each).any() else 1 for each in ious])

    def table(self) -> list[list[str]]:
        """Returns the scores of the classes as the cells of a table, below its header."""
        return [["class", "IoU", "accuracy", "boundary F1", "pixels"], *score_cells(self.per_class)]

    def text(self) -> str:
        """Formats the result as a table."""
        low, high = self.interval
        first = (
            f"{len(self.counts)} images, mean IoU {self.mean_iou:.4f} (95% interval {low:.3f} to "
            f"{high:.3f}), pixel accuracy {self.pixel_accuracy:.4f}, boundary F1 "
            f"{self.boundary_f1:.3f}"
        )
        return "\n".join([first, *text_table(self.table(), "<>>>>")])

    def to_json(self) -> dict[str, Any]:
        """Returns the result as a dictionary; scores of absent classes or boundaries are None."""
        return {
            "num_examples": len(self.counts),
            "mean_iou": self.mean_iou,
            "mean_iou_interval": list(self.interval),
            "pixel_accuracy": self.pixel_accuracy,
            "boundary_f1": self.boundary_f1 if self.boundary_f1 == self.boundary_f1 else None,
            "per_class": json_rows(self.per_class),
        }


def mean_iou(pairs: Any, channels: int) -> float:
    """Computes the mean IoU of classes, one for each channel, from pairs of true and predicted."""
    counts = [_pixels(true, predicted, channels)[1] for true, predicted in pairs]
    return float(np.nanmean(_ious(np.sum(counts, axis=0))))


def _pixels(true: np.ndarray, predicted: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the confusion (K, K) of one image, and its counts (3, K)."""
    valid = true != IGNORED
    indices = true[valid].astype(np.int64) * (size + 1) + np.minimum(predicted[valid], size)
    counts = np.bincount(indices, minlength=size * (size + 1)).reshape(size, size + 1)
    confusion = counts[:, :size]
    return confusion, np.array([confusion.diagonal(), counts.sum(axis=1), confusion.sum(axis=0)])


def _ious(counts: np.ndarray) -> np.ndarray:
    """Returns the IoU of each class (K,), NaN if it has no pixels."""
    correct, true, predicted = counts.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(true > 0, correct / (true + predicted - correct), np.nan)


def _means(boundaries: np.ndarray) -> np.ndarray:
    """Returns the mean precision and recall of each class (2, K), NaN if it never occurs."""
    occurs = ~np.isnan(boundaries)
    total = np.where(occurs, boundaries, 0).sum(axis=0)
    return np.where(occurs.any(axis=0), total / np.maximum(occurs.sum(axis=0), 1), np.nan)


def _boundaries(true: np.ndarray, predicted: np.ndarray, size: int) -> np.ndarray:
    """Returns the precision and recall of each class's boundary (2, K) in one image.

    Ignored pixels have the nearest class, so that a boundary lies in the middle of a band of them,
    and are not judged farther than the tolerance from pixels with a class.

    Reference: Csurka et al., What is a good evaluation measure for semantic segmentation? (2013)
    """
    tolerance = round(max(1.0, _TOLERANCE * float(np.hypot(*true.shape))))
    ignored, scores = true == IGNORED, np.full((2, size), np.nan)
    distances, nearest = ndimage.distance_transform_edt(ignored, return_indices=True)
    masks, judged = (true[tuple(nearest)], predicted), distances <= tolerance
    for label in np.unique(true[~ignored]):
        edges = [_edge(mask == label) & judged for mask in masks]
        if not np.any(edges):  # the whole image, in both
            continue
        near = [ndimage.maximum_filter(edge, 2 * tolerance + 1) for edge in edges]
        for row, (edge, other) in enumerate(((edges[1], near[0]), (edges[0], near[1]))):
            scores[row, label] = other[edge].mean() if edge.any() else 0.0
    return scores


def _edge(mask: np.ndarray) -> np.ndarray:
    """Returns the pixels of a region that have a neighbor outside of it, within the image."""
    return mask & ~ndimage.binary_erosion(mask, border_value=1)
