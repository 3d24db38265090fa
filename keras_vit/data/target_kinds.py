"""Kinds of targets: how they are checked, read, cut with their image, split and written.

Letters: N images, K classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.arguments import nearest, shortlist
from keras_vit.data.geometry import Geometry
from keras_vit.escapes import say

Examples = Any  # a `keras_vit.data.Examples`, which imports this module


class TargetKind:
    """Base class of the kinds; a kind of a plugin overrides what differs.

    The defaults are for targets that a task reads itself, without classes: any array of N entries
    that can be compared, such as paths of masks.
    """

    #: Whether targets have positions in the image, such as masks and boxes.
    dense = False
    #: Column of the targets in the CSV file of a split.
    column = "label"
    #: What a class is counted in.
    unit = "images"

    def checked(self, targets: Any, class_names: Sequence[str]) -> np.ndarray:
        """Returns the targets as an array, or raises `ValueError`."""
        return np.asarray(targets)

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], Any]:
        """Returns a `tf.data` function from an image's index to its target for the loss."""
        targets = tf.constant(examples.targets)
        return lambda index: tf.gather(targets, index)

    def loaded(self, examples: Examples) -> Any:
        """Returns the targets of all images, read from their files if they are in files."""
        return examples.targets

    def follow(self, target: Any, geometry: Geometry, size: tuple[int, int]) -> Any:
        """Returns the target of the part of an image in the model's input of `size` (h, w)."""
        return target

    def problem(self, examples: Examples, index: int, sides: tuple[int, int]) -> str | None:
        """Returns why the target of a readable image with `sides` (H, W) cannot be used."""
        return None

    def classes(self, examples: Examples, index: int) -> tuple[str, ...]:
        """Returns the names of an image's classes, in the order of `class_names`."""
        return ()

    def text(self, examples: Examples, index: int) -> str:
        """Returns the target as text for the CSV file of a split, to find changed targets."""
        return "|".join(self.classes(examples, index))

    def indicators(self, examples: Examples) -> np.ndarray:
        """Returns 1 for the classes of each image, else 0; splits keep each in both subsets."""
        return np.ones((len(examples), 1), np.uint8)

    def counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of images of each class (K,)."""
        return np.zeros(len(examples.class_names), np.int64)

    def unit_counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of units, such as pixels, of each class (K,)."""
        return self.counts(examples)

    def agree(self, targets: np.ndarray) -> bool:
        """Returns whether the targets of identical images are equal."""
        return len({np.asarray(target).tobytes() for target in targets}) == 1

    def with_classes(self, examples: Examples, class_names: tuple[str, ...]) -> Examples:
        """Returns the dataset with the classes of a model, where targets are indices of classes."""
        return examples

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` if a model cannot be trained on the targets."""

    def strata(self, examples: Examples, different: np.ndarray) -> np.ndarray:
        """Returns the stratum of each of the `different` images of a split (indices)."""
        return np.zeros(len(different), int)

    def balance(self, held_out: np.ndarray, different: Examples) -> None:
        """Moves images of a split to the other subset, in place."""


def size_mismatch(what: str, target: tuple[int, int], sides: tuple[int, int]) -> str | None:
    """Returns an error message if a target's sides differ from its image's (H, W), else None."""
    if target == sides:
        return None
    hint = "; it must be upright, as the image is shown" if target[::-1] == sides else ""
    return f"{what}: {target[0]} x {target[1]}, not {sides[0]} x {sides[1]} (height x width){hint}"


def model_classes(
    model_names: Sequence[str], class_names: Sequence[str], occurring: np.ndarray
) -> np.ndarray:
    """Returns the index of each class of a dataset among those of a model, matched by name.

    Args:
        model_names: Name of each class of the model.
        class_names: Name of each class of the dataset.
        occurring: Indices of the classes that the model must have; 0 is returned for all others.

    Raises:
        ValueError: If the model lacks a class that occurs, or has its name more than once.
    """
    names = [class_names[index] for index in occurring]
    for problem, wrong in (
        ("lacks", [name for name in names if name not in model_names]),
        ("has more than one", [name for name in names if tuple(model_names).count(name) > 1]),
    ):
        if wrong:
            hint = nearest(wrong[0], set(model_names) - {wrong[0]})
            raise ValueError(
                "`examples` must contain only classes that the model has exactly once; the "
                f"model {problem}: {shortlist(wrong, shown=20)}.{hint} Evaluate on data "
                "with the classes that the model was trained on. Received: a model with the "
                f"classes {shortlist(model_names, shown=20)}"
            )
    indices = np.zeros(len(class_names), int)
    indices[occurring] = [tuple(model_names).index(name) for name in names]
    return indices


class ClassIndex(TargetKind):
    """One class for each image: an index of `class_names`; one-hot (K,) for the loss."""

    def checked(self, targets: Any, class_names: Sequence[str]) -> np.ndarray:
        """Returns the targets (N,), int32."""
        targets = np.asarray(targets).astype(np.int32)
        if targets.size and not 0 <= targets.min() <= targets.max() < len(class_names):
            raise ValueError(
                f"`targets` must be indices of `class_names`, in [0, {len(class_names)}). "
                f"Received: targets from {targets.min()} to {targets.max()}"
            )
        return targets

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], Any]:
        """Returns a function from an image's index to its one-hot target (K,), float32."""
        targets, number = tf.constant(examples.targets), len(examples.class_names)
        return lambda index: tf.one_hot(tf.gather(targets, index), number)

    def classes(self, examples: Examples, index: int) -> tuple[str, ...]:
        """Returns the name of an image's class."""
        return (examples.class_names[examples.targets[index]],)

    def indicators(self, examples: Examples) -> np.ndarray:
        """Returns the one-hot classes (N, K)."""
        return np.eye(len(examples.class_names), dtype=np.uint8)[examples.targets]

    def counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of images of each class (K,)."""
        return np.bincount(examples.targets, minlength=len(examples.class_names))

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` unless there are two classes with two images each."""
        counts = self.counts(examples)
        present = [name for name, count in zip(examples.class_names, counts, strict=True) if count]
        if len(present) < 2:
            raise ValueError(
                "Training needs images of at least two classes, such as two subfolders. "
                f"Received: {examples.source} with the classes {present}"
            )
        single_image_classes = [examples.class_names[i] for i in np.flatnonzero(counts == 1)]
        if single_image_classes and examples.splits is None:
            raise ValueError(
                "Every class must have at least two images, one for training and one for "
                f"validation. Add images or remove the class. Received: {examples.source} with one "
                f"image of {single_image_classes[:20]}"
            )

    def strata(self, examples: Examples, different: np.ndarray) -> np.ndarray:
        """Returns the classes; raises `ValueError` if one has less than two different images."""
        counts = np.bincount(examples.targets[different], minlength=len(examples.class_names))
        for label in np.flatnonzero(self.counts(examples)):
            if counts[label] < 2:
                raise ValueError(
                    "Every class must have at least two different images that are in no other "
                    "class, one for training and one for validation. Received: "
                    f"{examples.source} with only {counts[label]} for class "
                    f"{examples.class_names[label]!r}"
                )
        return examples.targets[different]


class MultiHot(TargetKind):
    """Any number of classes for each image: 1 for these and 0 for the others, (K,)."""

    column = "labels"

    def checked(self, targets: Any, class_names: Sequence[str]) -> np.ndarray:
        """Returns the targets (N, K), uint8."""
        targets = np.asarray(targets)
        if targets.ndim != 2 or targets.shape[1] != len(class_names):
            raise ValueError(
                "`targets` must be of shape (N,), or (N, K) with a column for each of the "
                f"{len(class_names)} classes. Received: targets of shape {targets.shape}"
            )
        wrong = ~np.isin(targets, (0, 1))
        if wrong.any():
            raise ValueError(
                "`targets` of shape (N, K) must be 1 for the classes that an image shows and 0 for "
                f"the others. Received: {targets[wrong][0]!r} for image {np.argwhere(wrong)[0][0]}"
            )
        return targets.astype(np.uint8)

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], Any]:
        """Returns a function from an image's index to its target (K,), float32."""
        targets = tf.constant(examples.targets)
        return lambda index: tf.cast(tf.gather(targets, index), tf.float32)

    def classes(self, examples: Examples, index: int) -> tuple[str, ...]:
        """Returns the names of an image's classes."""
        return tuple(examples.class_names[k] for k in np.flatnonzero(examples.targets[index]))

    def indicators(self, examples: Examples) -> np.ndarray:
        """Returns the targets (N, K)."""
        return examples.targets

    def counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of images of each class (K,)."""
        return examples.targets.sum(axis=0, dtype=np.int64)

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` if all images have the same classes."""
        if len(np.unique(examples.targets, axis=0)) < 2:
            present = [examples.class_names[k] for k in np.flatnonzero(self.counts(examples))]
            raise ValueError(
                f"Training needs images with different labels. Received: {examples.source}, where "
                f"all {len(examples)} images show {present}"
            )

    def strata(self, examples: Examples, different: np.ndarray) -> np.ndarray:
        """Returns the rarest class of each image, or K for an image without any class."""
        labels = examples.targets[different]
        counts = labels.sum(axis=0, dtype=np.int64)
        if single := [examples.class_names[label] for label in np.flatnonzero(counts == 1)]:
            say(f"Note: labels of one image are trained on and not validated: {shortlist(single)}.")
        number = np.where(labels, counts, len(labels) + 1)
        return np.where(labels.any(axis=1), number.argmin(axis=1), len(counts))

    def balance(self, held_out: np.ndarray, different: Examples) -> None:
        """Gives every class a training image and, if possible, a validation image."""
        labels = different.targets
        for label in np.flatnonzero(labels.any(axis=0)):
            positives = np.flatnonzero(labels[:, label])
            if held_out[positives].all():
                held_out[positives[0]] = False
        for label in np.flatnonzero(labels.any(axis=0)):
            positives = np.flatnonzero(labels[:, label])
            if not held_out[positives].any():
                train_counts = labels[~held_out].sum(axis=0, dtype=int)  # (K,)
                movable = [i for i in positives if np.all(train_counts[labels[i] > 0] >= 2)]
                held_out[movable[:1]] = True


class NoTargets(ClassIndex):
    """Images without labels, all of one invented class, split without strata."""

    check_trainable = TargetKind.check_trainable  # all images can be trained on
    strata = TargetKind.strata


class Numbers(TargetKind):
    """A few numbers for each image, for regression: (D,), named by `class_names`."""

    column = "targets"

    def checked(self, targets: Any, class_names: Sequence[str]) -> np.ndarray:
        """Returns the targets (N, D), float32."""
        targets = np.asarray(targets, np.float32)
        if targets.shape[1:] != (len(class_names),) or not np.isfinite(targets).all():
            raise ValueError(
                "`targets` must be finite numbers of shape (N, D), with a name for each of the D "
                f"columns. Received: shape {targets.shape}, names {tuple(class_names)}"
            )
        return targets

    def text(self, examples: Examples, index: int) -> str:
        """Returns the numbers, joined by `|`."""
        return "|".join(f"{value:.9g}" for value in examples.targets[index])

    def with_classes(self, examples: Examples, class_names: tuple[str, ...]) -> Examples:
        """Returns the dataset with the numbers that a model predicts, in their order."""
        if missing := [name for name in class_names if name not in examples.class_names]:
            raise ValueError(
                "`data` must have a column for each number that the model predicts. Received: "
                f"{examples.source} without {missing}"
            )
        columns = [examples.class_names.index(name) for name in class_names]
        targets = examples.targets[:, columns]
        return dataclasses.replace(examples, targets=targets, class_names=class_names)

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` if a target is the same for all images."""
        same = np.ptp(examples.targets, axis=0) == 0 if len(examples) else [True]
        if np.any(same):
            names = [examples.class_names[i] for i in np.flatnonzero(same)]
            raise ValueError(
                "Training needs images with different targets. Received: "
                f"{examples.source} with the same value of {names} for all {len(examples)} images"
            )


#: Names of the classes of images without labels.
NO_CLASSES = ("image",)
CLASSES, MULTI_LABEL, NO_TARGETS, NUMBERS = ClassIndex(), MultiHot(), NoTargets(), Numbers()
