"""Detailed evaluation of a classifier for the HTML evaluation page."""

from __future__ import annotations

import keras

from keras_vit import data
from keras_vit.evaluation import slice_accuracies
from keras_vit.tasks.classification.calibration import calibrate
from keras_vit.tasks.classification.metrics import evaluate_predictions
from keras_vit.tasks.classification.mistakes import find_mistakes
from keras_vit.tasks.classification.page import ClassificationDetails
from keras_vit.tasks.task import Predictions

_MISTAKES = 12


def details(
    model: keras.Model, examples: data.Examples, predictions: Predictions
) -> ClassificationDetails:
    """Evaluates predicted probabilities (N, K) of labeled images in detail."""
    labels, probabilities, preprocessing = predictions
    exclusive = preprocessing.thresholds is None and len(labels) > 1
    predicted = probabilities.argmax(axis=1)
    return ClassificationDetails(
        scores=evaluate_predictions(labels, probabilities, preprocessing.class_names or ()),
        calibration=calibrate(labels, probabilities) if exclusive else None,
        mistakes=find_mistakes(examples, predictions, _MISTAKES, model),
        slices=slice_accuracies(labels, predicted, examples.columns),
    )
