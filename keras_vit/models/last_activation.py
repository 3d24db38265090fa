"""Detection of a model's final activation, and conversion of its outputs to probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.models.cloning import clone, clone_layer, last_layer, require_graph, to_float32
from keras_vit.models.metadata import preprocessing_of
from keras_vit.preprocessing import Preprocessing


def with_probabilities(model: keras.Model) -> tuple[keras.Model, Preprocessing]:
    """Returns a float32 version of a model that outputs probabilities, and its preprocessing.

    The missing activation is inferred from the last operation: a linear Dense or Activation means
    logits. Logits get a sigmoid (multi-label) if the preprocessing has thresholds, otherwise a
    softmax. A model that already ends in a sigmoid or softmax gets no further activation, except
    that one sigmoid output without thresholds, the probability of the second of two classes,
    becomes two outputs. The copy computes in float32, because other dtypes are only for training.
    """
    preprocessing = preprocessing_of(model)
    _check(model, preprocessing)
    classes = model.output_shape[-1]
    ending = ending_of(model)
    names = preprocessing.class_names
    if classes == 1 and not preprocessing.thresholds:
        if ending == "linear":
            raise ValueError(
                "`model` must end in at least two outputs, or in one with activation='sigmoid' "
                f"for two classes. Received: model={model.name!r} with one output without an "
                "activation, a number as in regression, for which there is no task"
            )
        if ending == "sigmoid":
            model, ending, classes = _with_two_outputs(model), "softmax", 2
            names = (f"not {names[0]}", *names) if names and len(names) == 1 else names
    labels = names or tuple(map(str, range(classes)))
    if len(labels) != classes:
        raise ValueError(
            "`model` must have one output per label of its preprocessing. "
            f"Received: {classes} outputs and {len(labels)} labels"
        )
    model = to_float32(model)
    if ending == "unknown":
        last = getattr(model, "operations", model.layers)[-1]
        raise ValueError(
            "`model` must end in a classifier: Dense or Activation with activation='softmax' or "
            "'sigmoid' (probabilities) or None (logits, to which the activation is added). "
            f"Received: model={model.name!r}, whose last layer is {last.name!r}"
        )
    if ending == "linear":
        ending = "sigmoid" if preprocessing.thresholds else "softmax"
        # In float32 under any dtype policy.
        activation = keras.layers.Activation(ending, dtype="float32", name=ending)
        model = keras.Model(model.inputs[0], activation(model.outputs[0]), name=model.name)
    thresholds = None
    if ending == "sigmoid":
        thresholds = preprocessing.thresholds or (0.5,) * classes
        if len(thresholds) != classes:
            raise ValueError(
                f"`model` must have one output per decision threshold. Received: {classes} "
                f"outputs and {len(thresholds)} thresholds"
            )
    return model, dataclasses.replace(preprocessing, class_names=labels, thresholds=thresholds)


def _with_two_outputs(model: keras.Model) -> keras.Model:
    """Returns a copy of a model with one sigmoid output p that returns (1 - p, p) by a softmax."""
    logit = without_last_activation(model)
    head = keras.layers.Dense(2, activation="softmax", dtype="float32", name="two_classes")
    outputs = head(logit.outputs[0])
    # Symmetric, so that relevance maps have a gradient for both classes.
    head.set_weights([np.array([[-0.5, 0.5]]), np.zeros(2)])
    return keras.Model(logit.inputs[0], outputs, name=model.name)


def without_last_activation(
    model: keras.Model, change: Callable[[Any], Any] = clone_layer
) -> keras.Model:
    """Copies a model without a final softmax or sigmoid; `change` copies each layer."""
    last = last_layer(model) if ending_of(model) in ("softmax", "sigmoid") else None

    def changed(layer: Any) -> Any:
        if layer is last and hasattr(layer, "activation"):
            layer = clone_layer(layer, activation="linear")
        elif layer is last:
            layer = keras.layers.Identity()
        return change(layer)

    return clone(model, changed)


def ending_of(model: keras.Model) -> str:
    """Infers the final activation of a model from its last operation; may be `"unknown"`."""
    last = last_layer(model)
    # `keras.ops.softmax` adds an operation of this name, which is not a public class.
    name = getattr(getattr(last, "activation", None), "__name__", type(last).__name__.lower())
    return name if name in ("softmax", "sigmoid", "linear") else "unknown"


def _check(model: keras.Model, preprocessing: Preprocessing) -> None:
    require_graph(model)
    if len(model.inputs) != 1 or len(model.outputs) != 1 or len(model.output_shape) != 2:
        raise ValueError(
            "`model` must accept one batch of images and return one score per class, (B, "
            f"classes). Received: model={model.name!r} with the inputs {model.input_shape} and "
            f"the outputs {model.output_shape}"
        )
    expected = (*preprocessing.size, preprocessing.num_channels)
    shape = tuple(model.input_shape[1:])
    if len(shape) != 3 or any(n not in (None, e) for n, e in zip(shape, expected, strict=True)):
        raise ValueError(
            f"`model` must accept images as its preprocessing produces them, {expected}. Received: "
            f"model={model.name!r} with the input shape {model.input_shape}"
        )
