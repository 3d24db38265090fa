"""A model and labelled images to a report."""

from __future__ import annotations

import keras

from keras_vit import models
from keras_vit.data import Examples, evaluation_dataset
from keras_vit.evaluation.labels import align
from keras_vit.evaluation.metrics import evaluate_predictions
from keras_vit.evaluation.report import Report
from keras_vit.models import inference


def evaluate(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 1
) -> Report:
    """Evaluates a model on labelled images, prepared as the model's contract says.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone; it
            is evaluated in float32, and with a softmax, even if it lacks that.
        examples: The images; their classes are matched to the model's by name.
        batch_size: Images in a step.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        Accuracy and scores of each class.

    Raises:
        ValueError: If the model is no image classifier, lacks a class of the data or has two of one
            name, or gives scores that are not finite.

    Example:
        >>> from keras_vit.data import load
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> evaluate(models.build(config), load("digits").subset(range(7)), verbose=0).num_examples
        7
    """
    network, contract = inference.prepare(model)
    labels = align(models.preprocessing_of(model).labels, examples)
    dataset = evaluation_dataset(examples, contract, batch_size=batch_size)
    probabilities = network.predict(dataset, verbose=verbose)  # (N, classes)
    return evaluate_predictions(labels, probabilities, contract.labels or ())
