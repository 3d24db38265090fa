"""A model and labelled images to a report."""

from __future__ import annotations

import keras
import numpy as np

from keras_vit import models
from keras_vit.data import Examples, evaluation_dataset
from keras_vit.evaluation.labels import align
from keras_vit.evaluation.metrics import evaluate_predictions
from keras_vit.evaluation.report import Report


def evaluate(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 1
) -> Report:
    """Evaluates a model on labelled images, prepared as the model's contract says.

    Args:
        model: A model of this package with a classifier.
        examples: The images; their classes are matched to the model's by name.
        batch_size: Images in a step.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        Accuracy and scores of each class.

    Raises:
        ValueError: If the model has no classifier, or lacks a class of the data.
    """
    config = models.config_of(model)
    if not config.classes:
        raise ValueError(
            "`model` must have a classifier to be evaluated. "
            f"Received: model={model.name!r} with include_top=False"
        )
    contract = models.preprocessing_of(model)
    labels = align(contract.labels, examples)
    outputs = model.predict(
        evaluation_dataset(examples, contract, batch_size=batch_size), verbose=verbose
    )  # (N, classes)
    if config.classifier_activation is None:
        outputs = keras.ops.convert_to_numpy(keras.ops.softmax(outputs))
    names = contract.labels or tuple(str(index) for index in range(config.classes))
    return evaluate_predictions(labels, np.asarray(outputs), names)
