"""Check for an implausible loss or identical predictions, before or after training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.runs import history

# Loss of a new classifier or of the first epoch that is too high, in units of log K.
_TOO_HIGH = 1.5
# With a loss below this, in units of log K, a new classifier prefers a class only by chance.
_NEAR = 1.2
# Fraction of images with the same prediction that counts as collapsed, in balanced data.
_COLLAPSED = 0.95
# Steps after which the accuracy should be better than chance.
_MIN_STEPS = 1000


def check_start(context: DoctorContext) -> list[Finding]:
    """Compares the loss with chance level, log(K), and detects a constant prediction.

    A new classifier with small weights has a loss of log(K); a higher loss wastes the first epochs.
    A trained classifier with a loss of log(K), or with a constant prediction, has learned nothing.
    """
    loss, chance, num_images = context.loss, context.start, len(context.labels)
    counts = np.bincount(context.predicted, minlength=context.num_classes)
    top_class, share = int(counts.argmax()), float(counts.max()) / num_images
    largest_share = float(np.bincount(context.labels).max()) / num_images
    variation = float(context.probabilities.std(axis=0).max())
    first_loss = _first_loss(context)
    optimizer = getattr(context.model, "optimizer", None)
    steps = int(optimizer.iterations.numpy()) if optimizer is not None else 0
    after_steps = f", after {steps:,} steps" if steps else ""
    trained = context.run is not None or steps > 0
    numbers: dict[str, Any] = {
        "loss": loss,
        "log_classes": chance,
        "accuracy": context.accuracy,
        "share_of_most_frequent_answer": share,
        "variation": variation,
    }
    summary = f"The loss on {num_images} images is {loss:.3f} (chance level: {chance:.3f}); "
    summary += f"accuracy {context.accuracy:.1%}."
    findings = Findings(summary, numbers)
    if context.new and not trained:
        evidence = f"{summary} All classes are equally probable, as with a new classifier."
        return findings.fine("loss", evidence=evidence)
    if num_images > 1 and share >= _COLLAPSED and largest_share < _COLLAPSED - 0.1:
        constant = "; the probabilities do not depend on the image" if variation < 1e-4 else ""
        findings.add(
            "serious" if trained or constant else "warning" if loss > _NEAR * chance else "note",
            "one class predicted for all images",
            "If the model is trained, it has collapsed: lower the learning rate, use warm-up, "
            "check pixel scaling and dead layers, and train again. If it is new, initialize the "
            "classifier with smaller weights.",
            f"{summary} {share:.0%} of the predictions are class {top_class}, which is the true "
            f"class of {np.mean(context.labels == top_class):.0%} of the images{constant}.",
        )
    elif trained and not context.learned and loss > 0.9 * chance:
        findings.add(
            "serious" if context.run or steps >= _MIN_STEPS else "warning",
            "accuracy at chance level",
            "See the other findings about pixels, labels, learning rate and frozen layers.",
            f"{summary} This is chance level{after_steps}.",
        )
    if loss > _TOO_HIGH * chance and not findings:
        if context.learned:
            findings.warning(
                "loss above chance level",
                "If pixels and labels are correct, the model overfits: train for fewer epochs, "
                "or with label smoothing, more augmentation or more images.",
                f"{summary} The accuracy is above chance level, but the model is overconfident in "
                "its mistakes.",
            )
        else:
            findings.warning(
                "initial loss far from chance level",
                "If the classifier is new, initialize it with zeros or small weights "
                '(kernel_initializer="zeros"), after a normalization. If it is trained, check '
                "pixels and labels.",
                f"{summary} The classifier is confident, but its accuracy is at chance level.",
            )
    if first_loss > _TOO_HIGH * chance:
        numbers["first_epoch"] = first_loss
        findings.warning(
            "initial loss far from chance level",
            "The first steps increased the loss: lower the learning rate or lengthen the warm-up.",
            f"The mean loss of the first epoch was {first_loss:.3f} (chance level: "
            f"log({context.num_classes}) = {chance:.3f}).",
        )
    return findings or findings.fine("loss")


def _first_loss(context: DoctorContext) -> float:
    """Returns a run's training loss in the first epoch; NaN if unknown or not a softmax loss."""
    if context.run is None or context.config is None or context.config.recipe.loss != "softmax":
        return math.nan
    losses = (row.get("loss", math.nan) for row in history.read_rows(context.run.history))
    return next((loss for loss in losses if not math.isnan(loss)), math.nan)
