"""Evaluation of trained models on labeled images."""

from __future__ import annotations

from typing import Any

import keras

from keras_vit.data import Examples
from keras_vit.models import preprocessing_of
from keras_vit.tasks.registry import task_of
from keras_vit.tasks.task import Details


def evaluate(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 1
) -> Any:
    """Evaluates a model on labeled images, using the preprocessing stored in the model.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone;
            evaluated in float32, with a softmax or sigmoid added to logits.
        examples: The images; their classes are matched to the model's by name, or by position if
            the model has no class names and as many outputs as the data has classes.
        batch_size: Batch size.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        A `Report`: accuracy and per-class scores. For multi-label images a `MultiLabelReport`:
        average precision and the scores of each label at the model's thresholds.

    Raises:
        ValueError: If the model is not an image classifier, lacks a class of the data, has no class
            names and another number of classes than the data, has duplicate class names or
            returns scores that are not finite; or if the images are multi-label and the model's
            classes are exclusive.

    Examples:
        >>> from keras_vit.data import load
        >>> from keras_vit.zoo import ViTMicro4
        >>> names = tuple("0123456789")
        >>> model = ViTMicro4(weights=None, input_shape=(8, 8, 3), classes=10, class_names=names)
        >>> evaluate(model, load("digits").subset(range(7)), verbose=0).num_examples
        7
    """
    task = task_of(preprocessing_of(model), examples)
    return task.evaluate(model, examples, batch_size=batch_size, verbose=verbose).result


def evaluate_in_detail(
    model: keras.Model, examples: Examples, *, batch_size: int = 32, verbose: int = 0
) -> Details:
    """Evaluates a model in more detail, including calibration, mistakes and slices of the data.

    Args:
        model: As for `evaluate`.
        examples: The images; every image must decode.
        batch_size: Batch size.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        The details, with the result of `evaluate` as `scores`.

    Raises:
        ValueError: As `evaluate`.

    Examples:
        >>> from keras_vit.data import load
        >>> from keras_vit.zoo import ViTMicro4
        >>> names = tuple("0123456789")
        >>> model = ViTMicro4(weights=None, input_shape=(8, 8, 3), classes=10, class_names=names)
        >>> details = evaluate_in_detail(model, load("digits").subset(range(50)))
        >>> details.scores.num_examples, len(details.mistakes)
        (50, 12)
    """
    task = task_of(preprocessing_of(model), examples)
    evaluation = task.evaluate(model, examples, batch_size=batch_size, verbose=verbose)
    return task.details(model, examples, evaluation)
