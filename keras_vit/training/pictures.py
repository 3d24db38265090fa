"""What a run got wrong, as a picture, and pictures for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

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
    images = [decode_resized(tf.constant(examples.read(int(i))), preprocessing) for i in sure]
    shares = np.eye(len(names))[labels[sure]]
    return plots.contact_sheet(
        preprocessing.to_rgb(np.stack(images)), shares, names, path, captions
    )


def log_pictures(folder: str | os.PathLike[str], pictures: Mapping[str, Path]) -> None:
    """Shows PNG files in TensorBoard.

    Args:
        folder: Of the logs.
        pictures: Files by the names under which they are shown.

    Example:
        >>> log_pictures("tensorboard/evaluation", {})
    """
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for name, path in pictures.items():
            image = tf.io.decode_png(path.read_bytes(), channels=3)
            tf.summary.image(name, image[tf.newaxis], step=0)
    writer.close()
