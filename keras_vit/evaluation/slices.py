"""Accuracy on slices of the data, such as the images from one camera or hospital."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.evaluation.statistics import wilson

# Unique values of a column; columns with more values are usually names or numbers.
_MIN_VALUES, _MAX_VALUES = 2, 20


class Slice(NamedTuple):
    """Accuracy on one slice: all images with the same value in a column.

    Args:
        column: Name of the column.
        value: The value.
        images: Number of images with the value.
        accuracy: Accuracy on these images, in [0, 1].
        interval: 95% Wilson interval of the accuracy.

    Examples:
        >>> Slice("camera", "phone", 12, 0.75, (0.47, 0.91)).images
        12
    """

    column: str
    value: str
    images: int
    accuracy: float
    interval: tuple[float, float]


def slice_accuracies(
    labels: ArrayLike, predicted: ArrayLike, columns: Mapping[str, Sequence[str]]
) -> tuple[Slice, ...]:
    """Computes the accuracy for each value of each column.

    Args:
        labels: True classes, (N,).
        predicted: Predicted classes, (N,).
        columns: N values for each column. Columns with one distinct value, or more than 20, are
            skipped.

    Returns:
        A row for each value, in the order of the columns and of the sorted values.

    Examples:
        >>> rows = slice_accuracies([0, 1, 1], [0, 1, 0], {"camera": ["phone", "reflex", "phone"]})
        >>> [(row.value, row.images, row.accuracy) for row in rows]
        [('phone', 2, 0.5), ('reflex', 1, 1.0)]
    """
    correct = np.asarray(labels) == np.asarray(predicted)
    rows = []
    for name, value, mask in slice_masks(columns):
        interval = wilson(correct[mask].sum(), int(mask.sum()))
        rows.append(Slice(name, value, int(mask.sum()), float(correct[mask].mean()), interval))
    return tuple(rows)


def slice_masks(
    columns: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yields the column, the value and the mask (N,) of the images of each slice."""
    for name, values in columns.items():
        array = np.asarray(values, dtype=str)
        unique = np.unique(array)
        if _MIN_VALUES <= len(unique) <= _MAX_VALUES:
            yield from ((name, str(value), array == value) for value in unique)
