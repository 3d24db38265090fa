"""Figures that others have published, to stand beside measured ones, never in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras_vit.evaluation.class_scores import ClassScores


class Published(NamedTuple):
    """A published result on a known data set.

    Args:
        model: What was trained.
        setting: How, in a line.
        accuracy: Share of right answers, in [0, 1].
        per_class: Scores of each class; how many images there were is unknown, so 0.

    Example:
        >>> FLOWERS[0].accuracy
        0.956
    """

    model: str
    setting: str
    accuracy: float
    per_class: tuple[ClassScores, ...]


FLOWER_CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
# From a study that reached us without its title; its authors suspect their ResNet's learning rate.
_SETTING = "200 epochs, batch 256, learning rate 0.001, 80/20 split"
_FLOWERS = {
    "ViT-B/16": (
        f"ImageNet-21k weights, {_SETTING}",
        0.956,
        (
            *((0.966, 0.973, 0.969), (0.963, 0.976, 0.969), (0.903, 0.939, 0.920)),
            *((0.979, 0.979, 0.979), (0.966, 0.914, 0.939)),
        ),
    ),
    "ResNet": (
        f"{_SETTING}; its authors suspect the learning rate",
        0.689,
        (
            *((0.962, 0.643, 0.770), (0.493, 0.988, 0.657), (0.941, 0.501, 0.654)),
            *((0.978, 0.441, 0.608), (0.767, 0.758, 0.763)),
        ),
    ),
}
FLOWERS = tuple(
    Published(
        model,
        setting,
        accuracy,
        tuple(
            ClassScores(name, *scores, support=0)
            for name, scores in zip(FLOWER_CLASSES, rows, strict=True)
        ),
    )
    for model, (setting, accuracy, rows) in _FLOWERS.items()
)


def shows_flowers(class_names: Sequence[str]) -> bool:
    """Tells TensorFlow's flower photographs by their classes.

    Args:
        class_names: The classes of a data set.

    Returns:
        Whether `FLOWERS` may stand beside what is measured on it.

    Example:
        >>> shows_flowers(["tulips", "daisy", "dandelion", "roses", "sunflowers"])
        True
    """
    return sorted(class_names) == sorted(FLOWER_CLASSES)
