"""The model that is evaluated and exported: float32, one set of probabilities per image."""

from __future__ import annotations

import dataclasses

import keras

from keras_vit.models.cloning import last_layer, to_float32
from keras_vit.models.metadata import preprocessing_of
from keras_vit.preprocessing import Preprocessing


def with_probabilities(model: keras.Model) -> tuple[keras.Model, Preprocessing]:
    """Returns a float32 model that answers with probabilities, and its complete preprocessing.

    What is missing is read from the last operation: a linear Dense or Activation means logits. A
    sigmoid, a yes or no for each label, stays as it is, and completes logits whose preprocessing
    has thresholds; any other logits get a softmax. Other precisions are a property of training;
    the copy computes in float32.

    Args:
        model: A classifier of keras_vit, or a functional or sequential Keras model that
            contains a keras_vit backbone.

    Returns:
        The model, which shares its weights with `model` if all of that one is in float32, and
        its preprocessing with a label for every class, `"0"`, `"1"`, ... where it has none, and
        with a threshold for every one behind a sigmoid, 0.5 where it has none, and only there.

    Raises:
        ValueError: If the model is no classifier of images in the format of its preprocessing.

    Example:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(
        ...     image_size=(8, 8), classes=3, classifier_activation=None
        ... )
        >>> network, preprocessing = with_probabilities(models.build(config))
        >>> network.layers[-1].name, preprocessing.class_names
        ('softmax', ('0', '1', '2'))
    """
    preprocessing = preprocessing_of(model)
    _check(model, preprocessing)
    classes = model.output_shape[-1]
    labels = preprocessing.class_names or tuple(map(str, range(classes)))
    if len(labels) != classes:
        raise ValueError(
            "`model` must have one output per label of its preprocessing. "
            f"Received: {classes} outputs and {len(labels)} labels"
        )
    model = to_float32(model)
    ending = ending_of(model)
    if ending == "unknown":
        last = getattr(model, "operations", model.layers)[-1]
        raise ValueError(
            "`model` must end in a classifier: Dense or Activation with activation='softmax' or "
            "'sigmoid' (probabilities) or None (logits; what is missing is added). "
            f"Received: model={model.name!r}, whose last layer is {last.name!r}"
        )
    if ending == "linear":
        ending = "sigmoid" if preprocessing.thresholds else "softmax"
        # In float32, whatever the policy is.
        activation = keras.layers.Activation(ending, dtype="float32", name=ending)
        model = keras.Model(model.inputs[0], activation(model.outputs[0]), name=model.name)
    thresholds = None
    if ending == "sigmoid":
        thresholds = preprocessing.thresholds or (0.5,) * classes
        if len(thresholds) != classes:
            raise ValueError(
                "`model` must have one output per threshold of its preprocessing. "
                f"Received: {classes} outputs and {len(thresholds)} thresholds"
            )
    return model, dataclasses.replace(preprocessing, class_names=labels, thresholds=thresholds)


def ending_of(model: keras.Model) -> str:
    """Returns the last activation of a model, as far as its last operation tells it.

    Args:
        model: Any Keras model; only functional and sequential ones tell it.

    Returns:
        `"softmax"`, `"sigmoid"`, `"linear"` or `"unknown"`.

    Example:
        >>> ending_of(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
        'linear'
    """
    last = last_layer(model)
    # `keras.ops.softmax` leaves an operation of this name, which is no public class.
    name = getattr(getattr(last, "activation", None), "__name__", type(last).__name__.lower())
    return name if name in ("softmax", "sigmoid", "linear") else "unknown"


def _check(model: keras.Model, preprocessing: Preprocessing) -> None:
    if len(model.inputs) != 1 or len(model.outputs) != 1 or len(model.output_shape) != 2:
        raise ValueError(
            "`model` must take one batch of images and return one score per class, (B, classes). "
            f"Received: model={model.name!r} with the inputs {model.input_shape} and the outputs "
            f"{model.output_shape}"
        )
    needed = (*preprocessing.size, preprocessing.num_channels)
    given = tuple(model.input_shape[1:])
    if len(given) != 3 or any(g not in (None, n) for g, n in zip(given, needed, strict=True)):
        raise ValueError(
            "`model` must take images of the size and channels that its preprocessing makes, "
            f"{needed}. Received: model={model.name!r} with the input shape {model.input_shape}"
        )
