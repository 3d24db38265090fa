"""Check of the class order and the class names of the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from keras_vit import arguments
from keras_vit.doctor.context import DoctorContext, clearly_better, turns
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.output_kind import mean_loss

# Minimum gain in accuracy by another class order.
_GAIN = 0.1
# Maximum loss with the other class order, in units of log K: the predictions of an untrained model
# are not confident in any order.
_CONFIDENT = 0.8


def check_labels(context: DoctorContext) -> list[Finding]:
    """Checks for a shift or permutation of the classes with a much better accuracy.

    A permutation is fitted on one half of the images and evaluated on the other half, because
    on the first half it is better by chance.
    """
    guesses, labels, classes = context.guesses, context.labels, context.num_classes
    plain = context.accuracy
    # Of two classes, both shifts are the swap that the permutation finds.
    moved = {shift: (labels + shift) % classes for shift in ((1, -1) if classes > 2 else ())}
    shifted = {f"{shift:+d}": float((guesses == new).mean()) for shift, new in moved.items()}
    meaning, half = _best_permutation(context)
    permuted = float((guesses[half] == meaning[labels[half]]).mean()) if len(half) else plain
    numbers: dict[str, Any] = {"accuracy": plain, "accuracy_shifted": shifted}
    numbers["accuracy_permuted"] = permuted
    moved_by = ", ".join(f"{shift} {value:.1%}" for shift, value in shifted.items())
    evidence = f"Accuracy on {len(labels)} images: {plain:.1%}; "
    evidence += f"with labels moved by {moved_by}; " if moved else ""
    evidence += f"under the best permutation of the classes {permuted:.1%} (found on one half of "
    evidence += f"the images, counted on the {len(half)} others)."
    found = Findings(evidence, numbers)
    for shift, new in moved.items():
        if _is_better(context, np.arange(len(labels)), new):
            numbers["shift"] = shift
            return found.serious(
                "labels shifted by one",
                f"Label k is the model's output k {'+' if shift > 0 else '-'} 1. Count classes "
                "from 0, and see whether the model or the data has a class, such as a "
                "background or a stray folder, that the other has not.",
            )
    if len(half) and _is_better(context, half, meaning[labels[half]]):
        others = [int(k) for k in np.unique(labels) if meaning[k] != k]
        numbers["permutation"] = {class_name(context, k): int(meaning[k]) for k in others}
        pairs = [f"{name} at {output}" for name, output in numbers["permutation"].items()]
        return found.serious(
            "labels permuted",
            "List the classes in one order everywhere; Keras, like this package, sorts the "
            "names of folders as text, so that 10 comes before 2. Give the model its labels "
            "in the order of its outputs.",
            f"{evidence} At other outputs are {arguments.shortlist(pairs)}.",
        )
    return found.fine("labels")


def check_names(context: DoctorContext) -> list[Finding]:
    """Compares the number of outputs and their names with the classes of the data."""
    labels, outputs = context.preprocessing.class_names, context.num_classes
    classes = len(context.examples.class_names)
    seen = f"The model has {outputs} outputs"
    seen += f" and {len(labels)} names for them" if labels else " without names"
    seen += f"; the data has {classes} classes."
    numbers = {"outputs": outputs, "classes": classes, "labels": labels and len(labels)}
    found = Findings(seen, numbers)
    if labels and len(labels) != outputs:
        return found.serious(
            "outputs differ from labels",
            "Build the model with classes=len(labels), or correct the labels of its Preprocessing.",
        )
    if labels:
        return found.fine("names")
    if outputs < classes:
        fix = f"Give the classifier {classes} outputs; it cannot answer with the other classes."
        return found.serious("outputs differ from classes", fix)
    if outputs > classes:
        return found.warning(
            "outputs differ from classes",
            f"Give the classifier {classes} outputs, or the model the names of its classes, so "
            "that the data's are found among them.",
        )
    return found.note(
        "classes without names",
        "Nobody can tell what an output means. Models of keras_vit carry "
        "Preprocessing(class_names=...): keras_vit.models.rebuild(model, preprocessing="
        "dataclasses.replace(preprocessing, class_names=...)). With others, keep the list of "
        "class_names beside the file.",
    )


def class_name(context: DoctorContext, output: int) -> str:
    """Returns the name of the class of one of the model's outputs."""
    labels = context.preprocessing.class_names
    names = labels if labels and context.matched == "name" else context.examples.class_names
    return names[output] if output < len(names) else str(output)


def _best_permutation(context: DoctorContext) -> tuple[np.ndarray, np.ndarray]:
    """Returns the output of each class, and the images not used to find the permutation."""
    labels, guesses = context.labels, context.guesses
    half = turns(labels) % 2  # the sample is in random order
    first, second = np.flatnonzero(half == 0), np.flatnonzero(half == 1)
    # Only classes that occur, because some models have twenty thousand classes.
    rows, columns = np.unique(labels), np.union1d(labels, guesses)
    # Ties are resolved in favor of the current class order.
    counts = 0.5 * (rows[:, None] == columns)
    places = np.searchsorted(rows, labels[first]), np.searchsorted(columns, guesses[first])
    np.add.at(counts, places, 1)
    chosen = linear_sum_assignment(counts, maximize=True)
    meaning = np.arange(context.num_classes)
    meaning[rows[chosen[0]]] = columns[chosen[1]]
    return meaning, second


def _is_better(context: DoctorContext, images: np.ndarray, meant: np.ndarray) -> bool:
    right = context.guesses[images] == meant
    # Three times chance, or halfway between chance and 1 if that is lower.
    chance = 1 / context.num_classes
    return bool(
        right.mean() >= min(3 * chance, (1 + chance) / 2)
        and mean_loss(context.probabilities[images], meant) < _CONFIDENT * context.start
        and clearly_better(right, context.right[images], _GAIN)
    )
