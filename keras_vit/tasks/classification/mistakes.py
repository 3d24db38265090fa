"""A classifier's mistakes with the highest confidence."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.data import Examples
from keras_vit.data.pipeline import read_pixels
from keras_vit.models import FeatureExtractor, last_activation
from keras_vit.tasks.classification.explain import maps_in_batches
from keras_vit.tasks.task import Predictions
from keras_vit.visualization import overlay
from keras_vit.visualization.contact_sheet import contact_sheet

_METHOD = "gradient_rollout"
_NUM_DRAWN = 32


class Mistake(NamedTuple):
    """A misclassified image and its relevance map.

    Args:
        name: Name of the image.
        true: True class.
        predicted: Predicted class.
        confidence: Probability of the predicted class, in [0, 1].
        pixels: Image at the model's input size, (h, w, C), uint8, with red first.
        explained: Image overlaid with the relevance map of the predicted class, (h, w, 3), uint8;
            None without a model, or for one that is not a Vision Transformer.
    """

    name: str
    true: str
    predicted: str
    confidence: float
    pixels: np.ndarray
    explained: np.ndarray | None


def most_confident_mistakes(labels: ArrayLike, probabilities: ArrayLike, number: int) -> np.ndarray:
    """Returns the indices of the mistakes with the highest confidence, rounded to 0.01%."""
    scores = np.asarray(probabilities)
    mistakes = np.flatnonzero(scores.argmax(axis=1) != np.asarray(labels))
    return mistakes[np.argsort(-scores[mistakes].max(axis=1).round(4), kind="stable")][:number]


def find_mistakes(
    examples: Examples, predictions: Predictions, number: int, model: keras.Model | None = None
) -> tuple[Mistake, ...]:
    """Returns the most confident mistakes, with relevance maps if a model is given."""
    labels, probabilities, preprocessing = predictions
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    indices = most_confident_mistakes(labels, probabilities, number)
    if not len(indices):
        return ()
    pixels = read_pixels([examples.read(int(i)) for i in indices], preprocessing)
    rgb = preprocessing.to_rgb(pixels)
    explained: list[np.ndarray | None] = [None] * len(indices)
    if model is not None:
        with contextlib.suppress(ValueError):  # not a Vision Transformer, or not supported
            extractor = FeatureExtractor(last_activation.with_probabilities(model)[0])
            images = preprocessing.scale(pixels)
            maps = maps_in_batches(extractor, images, [_METHOD], predicted[indices])[_METHOD]
            explained = list(overlay(rgb, maps))
    names = preprocessing.class_names or ()
    return tuple(
        Mistake(
            examples.names[i], names[labels[i]], names[predicted[i]], float(confidence[i]), *pair
        )
        for i, *pair in zip(indices, rgb, explained, strict=True)
    )


def draw_mistakes(
    examples: Examples, predictions: Predictions, path: str | os.PathLike[str]
) -> Path | None:
    """Draws the most confident mistakes of a model; returns None if the model makes no mistakes."""
    mistakes = find_mistakes(examples, predictions, _NUM_DRAWN)
    if not mistakes:
        return None
    captions = [f"{m.true}, predicted\n{m.predicted} ({m.confidence:.0%})" for m in mistakes]
    images = np.stack([mistake.pixels for mistake in mistakes])
    return contact_sheet(images, np.empty((len(mistakes), 0)), (), path, captions)
