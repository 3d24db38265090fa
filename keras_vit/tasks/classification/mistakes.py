"""Images that a model is most sure about and wrong."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np

from keras_vit.data import Examples
from keras_vit.data.decode_and_resize import decode_resized
from keras_vit.evaluation.evaluate import predict
from keras_vit.evaluation.mistakes import surest_mistakes
from keras_vit.visualization import plots

_SHOWN = 32


def draw_mistakes(
    model: keras.Model, examples: Examples, path: str | os.PathLike[str]
) -> Path | None:
    """Draws the images that a model is most sure about and wrong.

    Args:
        model: A classifier of keras_vit.
        examples: The images, each with one class.
        path: The picture to write.

    Returns:
        The path; None, and no picture, if nothing is wrong.

    Example:
        >>> from keras_vit import data, models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=10))
        >>> draw_mistakes(model, data.load("digits").subset(range(12)), "mistakes.png").name
        'mistakes.png'
    """
    labels, probabilities, preprocessing = predict(model, examples, verbose=0)
    predicted = probabilities.argmax(axis=1)
    sure = surest_mistakes(labels, probabilities, _SHOWN)
    if not len(sure):
        return None
    names = preprocessing.labels or ()
    captions = [
        f"{names[labels[i]]}, not\n{names[predicted[i]]} ({probabilities[i].max():.0%})"
        for i in sure
    ]
    images = [decode_resized(examples.read(int(i)), preprocessing) for i in sure]
    shares = np.eye(len(names))[labels[sure]]
    return plots.contact_sheet(
        preprocessing.to_rgb(np.stack(images)), shares, names, path, captions
    )
