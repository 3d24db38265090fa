"""Probabilities of a classifier for labelled images."""

from __future__ import annotations

import keras

from keras_vit import models
from keras_vit.data import Examples
from keras_vit.evaluation.class_alignment import align
from keras_vit.models import last_activation
from keras_vit.tasks.task import Predictions, network_outputs


def predict(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 1
) -> Predictions:
    """Returns what `evaluate` compares.

    Args:
        model: As for `keras_vit.tasks.evaluate.evaluate`.
        examples: The images.
        batch_size: Images in a step.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        The true classes as `align` tells them, the probabilities (N, classes), float32, and the
        model's complete preprocessing.

    Raises:
        ValueError: As `evaluate`, but for scores that are not finite.

    Example:
        >>> from keras_vit.data import load
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> digits = load("digits").subset(range(7))
        >>> predict(models.build(config), digits, verbose=0)[1].shape
        (7, 10)
    """
    network, preprocessing = last_activation.with_probabilities(model)
    if examples.multi_label and preprocessing.thresholds is None:
        raise ValueError(
            "`model` must end in a sigmoid, a yes or no for each label, where images may show "
            "several classes or none. "
            f"Received: model={model.name!r}, whose classes exclude one another"
        )
    labels = align(models.preprocessing_of(model).class_names, examples)
    probabilities = network_outputs(network, preprocessing, examples, batch_size, verbose)
    return Predictions(labels, probabilities, preprocessing)
