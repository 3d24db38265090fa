"""Check whether the loss fits the outputs, which may be probabilities or logits."""

from __future__ import annotations

import functools
import re
from typing import Any

import keras

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.output_kind import sums_to_one


def compiled_loss(model: keras.Model) -> tuple[str, bool | None] | None:
    """Returns the name and the `from_logits` setting of a model's compiled loss, if any."""
    loss: Any = getattr(model, "loss", None) if getattr(model, "compiled", False) else None
    while isinstance(loss, (list, tuple, dict)) and len(loss) == 1:
        loss = next(iter(loss.values() if isinstance(loss, dict) else loss))
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    from_logits = getattr(loss, "from_logits", None)
    if isinstance(loss, functools.partial):
        loss, from_logits = loss.func, loss.keywords.get("from_logits", from_logits)
    if not isinstance(loss, keras.losses.Loss) and not callable(loss):
        return None
    name = getattr(loss, "__name__", None) or type(loss).__name__
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    has_setting = "crossentropy" in name or from_logits is not None
    return name, bool(from_logits) if has_setting else None


def check_outputs(context: DoctorContext) -> list[Finding]:
    """Checks whether the final activation fits the loss and the range of the outputs."""
    outputs, ending = context.raw, context.ending
    sums = outputs.sum(axis=1)
    numbers = {
        "ending": ending,
        "minimum": float(outputs.min()),
        "maximum": float(outputs.max()),
        "smallest_sum": float(sums.min()),
        "largest_sum": float(sums.max()),
    }
    summary = f"The last activation is {ending}; the {outputs.shape[1]} outputs lie between "
    summary += f"{outputs.min():.3g} and {outputs.max():.3g}, and the rows sum to {sums.min():.3g} "
    summary += f"to {sums.max():.3g}."
    # Runs train on logits; the finished model ends in an activation.
    loss = compiled_loss(context.model) if context.config is None else None
    if loss:
        numbers["loss"], numbers["from_logits"] = loss
        summary += f" The model is compiled with {loss[0]}"
        summary += "." if loss[1] is None else f", from_logits={loss[1]}."
    findings = Findings(summary, numbers)
    if outputs.shape[1] == 1 and ending == "softmax":
        fix = "A softmax over one output is always 1: use two outputs, or a sigmoid."
        return findings.serious("softmax over one output", fix)
    if ending == "softmax" and not sums_to_one(outputs):
        fix = "Apply the softmax only once, along the last axis (the classes)."
        return findings.serious("probabilities that do not sum to 1", fix)
    if loss and loss[1] is not None:
        if loss[1] and ending in ("softmax", "sigmoid"):
            return findings.serious(
                "softmax twice",
                "Compile with from_logits=False, or end the model in a Dense layer without "
                "activation. (Keras detects and corrects this only if the softmax is the last "
                "operation of a TensorFlow graph, not in eager mode or on other backends.)",
            )
        may_be_probabilities = outputs.min() >= 0 and sums_to_one(outputs)
        if not loss[1] and ending == "linear" and not may_be_probabilities:
            fix = "Compile with from_logits=True, or end the model in a softmax."
            return findings.serious("logits treated as probabilities", fix)
        if ("binary" in loss[0]) != (ending == "sigmoid") and ending != "linear":
            needed = "binary_crossentropy" if ending == "sigmoid" else "categorical_crossentropy"
            return findings.warning(
                "loss that does not match the outputs",
                f"A {ending} output needs the loss {needed}: use a softmax for one label per "
                "image, and a sigmoid for several labels.",
            )
    if context.examples.multi_label and ending == "softmax":
        return findings.warning(
            "softmax for multi-label data",
            "The images may show several classes or none, but a softmax predicts exactly one: "
            "end the model in a sigmoid, and train it with binary_crossentropy.",
        )
    if not loss and context.config is None:
        summary += f" No loss is compiled; use from_logits={ending == 'linear'}."
    return findings.fine("outputs", evidence=summary)
