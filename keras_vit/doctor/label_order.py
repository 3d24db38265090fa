"""Check of the order and the names of the classes that the model's outputs represent."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from keras_vit import arguments
from keras_vit.doctor.context import DoctorContext, turns
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.output_kind import mean_loss
from keras_vit.evaluation.statistics import clearly_better

# Minimum gain in accuracy by another class order.
_GAIN = 0.1
# Maximum loss with the other class order, in units of log K: the predictions of an untrained model
# are not confident in any order.
_CONFIDENT = 0.8


def check_labels(context: DoctorContext) -> list[Finding]:
    """Checks whether the accuracy is much better if the classes are shifted or permuted.

    A permutation is fitted to one half of the images and evaluated on the other half, because on
    the first half it would be better merely by chance.
    """
    predicted, labels, classes = context.predicted, context.labels, context.num_classes
    accuracy = context.accuracy
    # Of two classes, both shifts are the swap that the permutation finds.
    shifted = {shift: (labels + shift) % classes for shift in ((1, -1) if classes > 2 else ())}
    accuracies = {f"{by:+d}": float((predicted == new).mean()) for by, new in shifted.items()}
    outputs, test = _best_permutation(context)
    permuted = float((predicted[test] == outputs[labels[test]]).mean()) if len(test) else accuracy
    numbers: dict[str, Any] = {"accuracy": accuracy, "accuracy_shifted": accuracies}
    numbers["accuracy_permuted"] = permuted
    listed = ", ".join(f"{shift} {value:.1%}" for shift, value in accuracies.items())
    evidence = f"Accuracy on {len(labels)} images: {accuracy:.1%}; "
    evidence += f"with labels shifted by {listed}; " if shifted else ""
    evidence += f"with the best permutation of the classes {permuted:.1%} (found on one half of "
    evidence += f"the images, measured on the other {len(test)})."
    findings = Findings(evidence, numbers)
    for shift, new in shifted.items():
        if _is_better(context, np.arange(len(labels)), new):
            numbers["shift"] = shift
            return findings.serious(
                "labels shifted by one",
                f"Label k is the model's output k {'+' if shift > 0 else '-'} 1. Number the "
                "classes from 0, and check whether only the model or only the data has an extra "
                "class, such as background or a stray folder.",
            )
    if len(test) and _is_better(context, test, outputs[labels[test]]):
        moved = [int(k) for k in np.unique(labels) if outputs[k] != k]
        numbers["permutation"] = {class_name(context, k): int(outputs[k]) for k in moved}
        pairs = [f"{name} at {output}" for name, output in numbers["permutation"].items()]
        return findings.serious(
            "labels permuted",
            "Use one class order everywhere; Keras and this package sort folder names as text, "
            "so 10 comes before 2. List the class names in the order of the model's outputs.",
            f"{evidence} Classes with a different output index: {arguments.shortlist(pairs)}.",
        )
    return findings.fine("labels")


def check_names(context: DoctorContext) -> list[Finding]:
    """Compares the model's outputs and class names with the classes of the data."""
    labels, outputs = context.preprocessing.class_names, context.num_classes
    classes = len(context.examples.class_names)
    summary = f"The model has {outputs} outputs"
    summary += f" and {len(labels)} class names" if labels else " without names"
    summary += f"; the data has {classes} classes."
    numbers = {"outputs": outputs, "classes": classes, "labels": labels and len(labels)}
    findings = Findings(summary, numbers)
    if labels and len(labels) != outputs:
        return findings.serious(
            "outputs differ from labels",
            "Make the number of outputs equal to that of the class names.",
        )
    if labels:
        return findings.fine("names")
    if outputs < classes:
        fix = f"Give the classifier {classes} outputs; some classes have none."
        return findings.serious("outputs differ from classes", fix)
    if outputs > classes:
        return findings.warning(
            "outputs differ from classes",
            f"Give the classifier {classes} outputs, or give the model its class names, so that "
            "the classes of the data can be matched by name.",
        )
    return findings.note(
        "classes without names",
        "Without names, the meaning of an output is unknown. Models of keras_vit store class "
        "names: pass class_names= to the constructor, or copy the model with "
        "keras_vit.models.with_preprocessing(model, dataclasses.replace("
        "keras_vit.models.preprocessing_of(model), class_names=(...))). For other models, keep the "
        "list of class names next to the model file.",
    )


def class_name(context: DoctorContext, output: int) -> str:
    """Returns the class name of one output of the model."""
    labels = context.preprocessing.class_names
    names = labels if labels and context.matched == "name" else context.examples.class_names
    return names[output] if output < len(names) else str(output)


def _best_permutation(context: DoctorContext) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best output for each class, and the images held out from this search."""
    labels, predicted = context.labels, context.predicted
    half = turns(labels) % 2  # the sample is in random order
    training, test = np.flatnonzero(half == 0), np.flatnonzero(half == 1)
    # Only classes that occur, because some models have twenty thousand classes.
    rows, columns = np.unique(labels), np.union1d(labels, predicted)
    # Ties are resolved in favor of the current class order.
    counts = 0.5 * (rows[:, None] == columns)
    places = np.searchsorted(rows, labels[training]), np.searchsorted(columns, predicted[training])
    np.add.at(counts, places, 1)
    chosen = linear_sum_assignment(counts, maximize=True)
    outputs = np.arange(context.num_classes)
    outputs[rows[chosen[0]]] = columns[chosen[1]]
    return outputs, test


def _is_better(context: DoctorContext, images: np.ndarray, expected: np.ndarray) -> bool:
    correct = context.predicted[images] == expected
    # Three times chance, or halfway between chance and 1 if that is lower.
    chance = 1 / context.num_classes
    return bool(
        correct.mean() >= min(3 * chance, (1 + chance) / 2)
        and mean_loss(context.probabilities[images], expected) < _CONFIDENT * context.start
        and clearly_better(correct, context.correct[images], _GAIN)
    )
