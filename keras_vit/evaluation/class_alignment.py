"""Matching of a dataset's classes to a model's classes by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.data.target_kinds import model_classes

if TYPE_CHECKING:
    from keras_vit.data import Examples


def align(model_labels: Sequence[str] | None, examples: Examples) -> np.ndarray:
    """Converts a dataset's labels to the class order of a model.

    Classes are matched by name, so a model can be evaluated on a dataset that lists its
    classes in another order or has fewer classes. Where both lists are equal, indices are
    unchanged, which is correct even for the ImageNet classes that share a name (crane, maillot).

    Args:
        model_labels: Name of each class of the model; None if unknown, in which case both are
            assumed to have the same class indices.
        examples: The dataset; the model must have every class that occurs in the dataset.

    Returns:
        Integer class indices of shape (N,); for multi-label images 1 for the classes of an image
        and 0 for all other classes, (N, classes of the model).

    Raises:
        ValueError: If the model lacks a class that occurs, or has its name more than once.

    Examples:
        >>> import types
        >>> examples = types.SimpleNamespace(
        ...     targets=np.array([0, 1, 0]), class_names=("rose", "daisy")
        ... )
        >>> align(["daisy", "rose", "tulip"], examples).tolist()
        [1, 0, 1]
    """
    labels = np.asarray(examples.targets)
    multi_label = labels.ndim == 2
    if model_labels is None or tuple(model_labels) == tuple(examples.class_names):
        return labels
    indices = np.flatnonzero(labels.any(axis=0)) if multi_label else np.unique(labels)
    outputs_of_classes = model_classes(model_labels, examples.class_names, indices)
    if not multi_label:
        return outputs_of_classes[labels]
    aligned = np.zeros((len(labels), len(model_labels)), labels.dtype)
    aligned[:, outputs_of_classes[indices]] = labels[:, indices]
    return aligned
