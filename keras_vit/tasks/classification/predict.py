"""Prediction of class probabilities for labeled images."""

from __future__ import annotations

import keras

from keras_vit import models
from keras_vit.arguments import shortlist
from keras_vit.data import Examples
from keras_vit.escapes import say
from keras_vit.evaluation.class_alignment import align
from keras_vit.models import last_activation
from keras_vit.tasks.task import Predictions, network_outputs


def predict(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 1
) -> Predictions:
    """Predicts probabilities; also returns the labels in the order of the model's classes."""
    network, preprocessing = last_activation.with_probabilities(model)
    if examples.multi_label and preprocessing.thresholds is None:
        raise ValueError(
            "`model` must end in a sigmoid for multi-label data. Received: "
            f"model={model.name!r}, whose classes are mutually exclusive"
        )
    has_names = models.preprocessing_of(model).class_names is not None
    if not has_names:
        outputs, classes = len(preprocessing.class_names or ()), examples.class_names
        if outputs != len(classes):
            raise ValueError(
                f"`model` must contain class names (class_names= of its constructor or of its "
                f"Preprocessing), or as many outputs as the data has classes. Received: {outputs} "
                f"outputs of model={model.name!r}, {len(classes)} classes of {examples.source}"
            )
        say(f"Note: model without class names; outputs by position: {shortlist(classes)}.")
    labels = align(preprocessing.class_names if has_names else None, examples)
    probabilities = network_outputs(network, preprocessing, examples, batch_size, verbose)
    return Predictions(labels, probabilities, preprocessing)
