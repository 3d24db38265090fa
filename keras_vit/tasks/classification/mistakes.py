"""A classifier's mistakes with the highest confidence."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.data import Examples
from keras_vit.data.decode_and_resize import decode_resized
from keras_vit.tasks.classification.predict import predict
from keras_vit.visualization.contact_sheet import contact_sheet


def surest_mistakes(labels: ArrayLike, probabilities: ArrayLike, number: int) -> np.ndarray:
    """Returns the indices of the mistakes with the highest confidence, rounded to 0.01%."""
    scores = np.asarray(probabilities)
    wrong = np.flatnonzero(scores.argmax(axis=1) != np.asarray(labels))
    return wrong[np.argsort(-scores[wrong].max(axis=1).round(4), kind="stable")][:number]


_SHOWN = 32


def draw_mistakes(
    model: keras.Model, examples: Examples, path: str | os.PathLike[str]
) -> Path | None:
    """Draws the most confident mistakes of a model; returns None if the model makes no mistakes."""
    labels, probabilities, preprocessing = predict(model, examples, verbose=0)
    predicted = probabilities.argmax(axis=1)
    sure = surest_mistakes(labels, probabilities, _SHOWN)
    if not len(sure):
        return None
    names = preprocessing.class_names or ()
    captions = [
        f"{names[labels[i]]}, predicted\n{names[predicted[i]]} ({probabilities[i].max():.0%})"
        for i in sure
    ]
    images = [decode_resized(examples.read(int(i)), preprocessing) for i in sure]
    shares = np.eye(len(names))[labels[sure]]
    return contact_sheet(preprocessing.to_rgb(np.stack(images)), shares, names, path, captions)
