"""Detailed evaluation of a classifier for the HTML evaluation page."""

from __future__ import annotations

import contextlib

import keras
import numpy as np

from keras_vit import data, models
from keras_vit.data.pipeline import read_pixels
from keras_vit.evaluation import slice_accuracies
from keras_vit.models import last_activation
from keras_vit.tasks.classification.calibration import calibrate
from keras_vit.tasks.classification.explain import maps_in_batches
from keras_vit.tasks.classification.metrics import evaluate_predictions
from keras_vit.tasks.classification.mistakes import surest_mistakes
from keras_vit.tasks.classification.page import ClassificationDetails, Mistake
from keras_vit.tasks.task import Predictions
from keras_vit.visualization import overlay

_MISTAKES = 12
_METHOD = "gradient_rollout"


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
        mistakes=_mistakes(model, examples, predictions),
        slices=slice_accuracies(labels, predicted, examples.columns),
    )


def _mistakes(
    model: keras.Model, examples: data.Examples, predictions: Predictions
) -> tuple[Mistake, ...]:
    labels, probabilities, preprocessing = predictions
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    chosen = surest_mistakes(labels, probabilities, _MISTAKES)
    if not len(chosen):
        return ()
    pixels = read_pixels([examples.read(int(i)) for i in chosen], preprocessing)
    shown = preprocessing.to_rgb(pixels)
    explained: list[np.ndarray | None] = [None] * len(chosen)
    with contextlib.suppress(ValueError):  # not a Vision Transformer, or not supported
        extractor = models.FeatureExtractor(last_activation.with_probabilities(model)[0])
        images = preprocessing.scale(pixels)
        maps = maps_in_batches(extractor, images, [_METHOD], predicted[chosen])[_METHOD]
        explained = list(overlay(shown, maps))
    names = preprocessing.class_names or ()
    return tuple(
        Mistake(
            examples.names[i], names[labels[i]], names[predicted[i]], float(confidence[i]), *both
        )
        for i, *both in zip(chosen, shown, explained, strict=True)
    )
