"""Check of the loss before and after training, and of collapsed predictions."""

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
_ENOUGH = 1000


def check_start(context: DoctorContext) -> list[Finding]:
    """Compares the loss with log(K), the loss of equal probabilities, and counts predictions.

    A new classifier with small weights has a loss of log(K); a higher loss wastes the first epochs.
    A trained classifier with a loss of log(K), or with a constant prediction, has learned nothing.
    """
    loss, start, number = context.loss, context.start, len(context.labels)
    counts = np.bincount(context.guesses, minlength=context.num_classes)
    answer, share = int(counts.argmax()), float(counts.max()) / number
    largest = float(np.bincount(context.labels).max()) / number
    varied = float(context.probabilities.std(axis=0).max())
    first = _first_loss(context)
    steps = _steps(context)
    after = f", after {steps:,} steps" if steps else ""
    trained = context.run is not None or steps > 0
    numbers: dict[str, Any] = {
        "loss": loss,
        "log_classes": start,
        "accuracy": context.accuracy,
        "share_of_most_frequent_answer": share,
        "variation": varied,
    }
    seen = f"The loss on {number} images is {loss:.3f}, log({context.num_classes}) = {start:.3f}; "
    seen += f"accuracy {context.accuracy:.1%}."
    found = Findings(seen, numbers)
    if context.new and not trained:
        evidence = f"{seen} All classes are equally probable, as a new classifier has it."
        return found.fine("loss", evidence=evidence)
    if number > 1 and share >= _COLLAPSED and largest < _COLLAPSED - 0.1:
        constant = "; the probabilities do not depend on the image" if varied < 1e-4 else ""
        found.add(
            "serious" if trained or constant else "warning" if loss > _NEAR * start else "note",
            "one answer for everything",
            "If the model is trained, it has collapsed: lower the learning rate, warm up, look "
            "for pixels scaled wrongly and dead layers below, and train it again. If it is "
            "new, a smaller start of the classifier gives it a better one.",
            f"{seen} {share:.0%} of the answers are output {answer}, which is right for "
            f"{np.mean(context.labels == answer):.0%}{constant}.",
        )
    elif trained and not context.learned and loss > 0.9 * start:
        found.add(
            "serious" if context.run or steps >= _ENOUGH else "warning",
            "nothing learned",
            "See what else is found here: pixels, labels, the learning rate, frozen layers.",
            f"{seen} Guessing does as well{after}.",
        )
    if loss > _TOO_HIGH * start and not found:
        if context.learned:
            found.warning(
                "loss above that of guessing",
                "If pixels and labels are right, it has memorised its training images: train "
                "for fewer epochs, with label smoothing, more augmentation or more images.",
                f"{seen} The model is more often right than guessing is, but far too sure of "
                "its mistakes.",
            )
        else:
            found.warning(
                "start far from guessing",
                "If it is new, start it from zeros or small weights "
                '(kernel_initializer="zeros"), behind a normalisation. If it is trained, see '
                "pixels and labels.",
                f"{seen} The classifier is sure of answers that are no better than guessing.",
            )
    if first > _TOO_HIGH * start:
        numbers["first_epoch"] = first
        found.warning(
            "start far from guessing",
            "The first steps made it worse: lower the learning rate or lengthen the warm-up.",
            f"The mean loss of the first epoch was {first:.3f}, and log("
            f"{context.num_classes}) = {start:.3f} is that of guessing.",
        )
    return found or found.fine("loss")


def _first_loss(context: DoctorContext) -> float:
    """Returns the training loss of the first epoch; NaN unless it is a run's softmax loss."""
    if context.run is None or not context.run.history.is_file():
        return math.nan
    if context.config is not None and context.config.recipe.loss != "softmax":
        return math.nan
    losses = (row.get("loss", math.nan) for row in history.read(context.run.history))
    return next((loss for loss in losses if not math.isnan(loss)), math.nan)


def _steps(context: DoctorContext) -> int:
    """Returns the number of updates by the compiled optimizer."""
    optimizer = getattr(context.model, "optimizer", None)
    return int(optimizer.iterations.numpy()) if optimizer is not None else 0
