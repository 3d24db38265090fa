"""Boxes as targets: the objects in an image, each with its class.

Letters: M objects; K classes. Boxes are (first row, first column, last row, last column), in pixels
of the upright image, up to their outer edges.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.data.geometry import Geometry, cut_boxes
from keras_vit.data.target_kinds import Examples, TargetKind, model_classes, size_mismatch

ABSENT = -1.0  # class of the rows that pad a target


class Objects(NamedTuple):
    """Objects of one image.

    Args:
        rows: Box, class, and 1 for a crowd, which is ignored in scores, or else 0: (M, 6), float32.
        sides: Height and width of the annotated image.
    """

    rows: np.ndarray
    sides: tuple[int, int]


class Boxes(TargetKind):
    """Boxes of objects with their classes: (M, 6), padded with rows of the class `ABSENT`.

    Args:
        dropped: Reason for each dropped box, with its file.
    """

    dense, column, unit = True, "objects", "objects"

    def __init__(self, dropped: Sequence[str] = ()) -> None:
        self.dropped = dropped

    def checked(self, targets: Any, class_names: Sequence[str]) -> np.ndarray:
        """Returns the objects of each image, an array of `Objects` (N,)."""
        return np.fromiter((Objects(*target) for target in targets), object, len(targets))

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], Any]:
        """Returns a function from an image's index to its objects, padded to the most (M, 6)."""
        counts = [len(target.rows) for target in examples.targets]
        padded = np.full((len(counts), max([1, *counts]), 6), ABSENT, np.float32)
        for rows, target, count in zip(padded, examples.targets, counts, strict=True):
            rows[:count] = target.rows
        padded = tf.constant(padded)
        return lambda index: tf.gather(padded, index)

    def follow(self, target: Any, geometry: Geometry, size: tuple[int, int]) -> Any:
        """Returns the objects in the model's input (h, w); `ABSENT` if their center is outside.

        Crowds are in the input if any part of them is.
        """
        boxes, inside = cut_boxes(target[:, :4], geometry, size)
        inside |= (target[:, 5] == 1) & tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
        labels = tf.where(inside[:, tf.newaxis], target[:, 4:], ABSENT)
        return tf.concat([boxes, labels], axis=1)

    def problem(self, examples: Examples, index: int, sides: tuple[int, int]) -> str | None:
        """Returns an error message if the annotations are for another image size, else None."""
        expected = examples.targets[index].sides
        return size_mismatch("the boxes are those of an image of another size", expected, sides)

    def classes(self, examples: Examples, index: int) -> tuple[str, ...]:
        """Returns the names of the classes in an image."""
        return tuple(compress(examples.class_names, self._present(examples, index)))

    def indicators(self, examples: Examples) -> np.ndarray:
        """Returns 1 for the classes of each image and 0 for the others, (N, K)."""
        rows = [self._present(examples, index) for index in range(len(examples))]
        return np.array(rows, np.uint8).reshape(len(examples), -1)

    def counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of images with each class (K,)."""
        return self.indicators(examples).sum(axis=0, dtype=np.int64)

    def unit_counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of objects of each class (K,)."""
        rows = np.concatenate([np.zeros((0, 6)), *(target.rows for target in examples.targets)])
        return np.bincount(rows[:, 4].astype(int), minlength=len(examples.class_names))

    def with_classes(self, examples: Examples, class_names: tuple[str, ...]) -> Examples:
        """Returns the dataset with the classes of a model, which must have those that occur."""
        occurring = np.flatnonzero(self.counts(examples))
        order = model_classes(class_names, examples.class_names, occurring)
        targets = [target._replace(rows=target.rows.copy()) for target in examples.targets]
        for target in targets:
            target.rows[:, 4] = order[target.rows[:, 4].astype(int)]
        return dataclasses.replace(examples, targets=targets, class_names=class_names)

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` if no image has an object."""
        if not any(len(target.rows) for target in examples.targets):
            raise ValueError(
                f"Training needs images with objects. Received: {examples.source}, without any box"
            )

    def text(self, examples: Examples, index: int) -> str:
        """Returns the number of objects and the start of their SHA-256."""
        rows = examples.targets[index].rows
        return f"{len(rows)}:{hashlib.sha256(rows.tobytes()).hexdigest()[:8]}"

    def agree(self, targets: np.ndarray) -> bool:
        """Returns whether the objects of all images are equal."""
        return len({target.rows.tobytes() for target in targets}) == 1

    def _present(self, examples: Examples, index: int) -> np.ndarray:
        labels = examples.targets[index].rows[:, 4].astype(int)
        return np.bincount(labels, minlength=len(examples.class_names)) > 0


def usable(boxes: np.ndarray, sides: tuple[int, int]) -> tuple[np.ndarray, list[str | None]]:
    """Clips boxes (M, 4) to an image of `sides` (H, W); also returns why each cannot be used."""
    clipped = np.clip(boxes, 0, np.tile(sides, 2)).astype(np.float32)
    invalid = {
        "its numbers are not finite": ~np.isfinite(boxes).all(axis=1),
        "it has no area": (boxes[:, 2:] <= boxes[:, :2]).any(axis=1),
        "it is outside of the image": (clipped[:, 2:] <= clipped[:, :2]).any(axis=1),
    }
    reasons = np.select(list(invalid.values()), list(invalid), "")
    return clipped, [reason or None for reason in reasons.tolist()]
