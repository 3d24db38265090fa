"""Object detectors on a Vision Transformer.

Letters: B batch; H, W image height and width; E width of the adapter; K classes; A cells of all
sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import keras

from keras_vit import arguments, layers
from keras_vit.models.cloning import with_loss_scaling
from keras_vit.models.dense import WIDTH, fixed_size, quarter_size_features
from keras_vit.models.metadata import config_of

STRIDES = (8, 16, 32)  # of the cells, in pixels
_INITIAL_SCORE = 0.01  # before training; https://arxiv.org/abs/1708.02002
_INITIAL_DISTANCE = 2.0  # of a box's edges, in cells


def Detector(  # noqa: N802
    backbone: keras.Model,
    classes: int,
    width: int = WIDTH,
    name: str = "detector",
    dtype: Any = None,
) -> keras.Model:
    """Builds a model that detects objects, on a Vision Transformer.

    Each cell of 8, 16 and 32 pixels predicts one box and a score for each class. Several cells
    predict an object: of boxes that overlap, the one with the highest score is the object
    (`keras_vit.tasks.detection.prediction.suppressed`).

    Args:
        backbone: A model of this package; its head, if it has one, is not used.
        classes: Number K of classes.
        width: Channels of the adapter and of the heads.
        name: Name of the model.
        dtype: Keras dtype or policy of the new layers; by default the global policy.

    Returns:
        A functional model from images (B, H, W, C) to boxes and scores (B, A, 4 + K), float32:
        first row, first column, last row and last column in pixels, and a score in [0, 1] for each
        class.

    Raises:
        ValueError: If `backbone` is not a model of this package, or an argument is out of range.

    Examples:
        >>> from keras_vit.zoo import ViTMicro4
        >>> backbone = ViTMicro4(weights=None, include_top=False, input_shape=(32, 64, 3))
        >>> Detector(backbone, classes=5).output_shape
        (None, 42, 9)
    """
    return with_scores(detector_logits(backbone, classes, width, name, dtype))


def detector_logits(
    backbone: keras.Model,
    classes: int,
    width: int = WIDTH,
    name: str = "detector",
    dtype: Any = None,
) -> keras.Model:
    """Builds the model that is trained: as `Detector`, with logits in place of scores."""
    arguments.positive_int("classes", classes)
    policy = dtype or keras.config.dtype_policy()
    fixed_size(backbone)
    norm = functools.partial(layers.LayerNorm, config_of(backbone).epsilon, dtype=policy)
    features = quarter_size_features(backbone, arguments.positive_int("width", width), policy)
    conv = functools.partial(keras.layers.SeparableConv2D, width, 3, padding="same", dtype=policy)
    levels = []
    for stride in STRIDES:
        features = conv(strides=2, name=f"level_{stride}_conv")(features)
        features = norm(name=f"level_{stride}_norm")(features)
        features = keras.layers.ReLU(dtype=policy, name=f"level_{stride}")(features)
        levels.append(features)
    objects = _branch(levels, classes, conv, policy)
    return with_loss_scaling(keras.Model(backbone.input, objects, name=name))


def with_scores(model: keras.Model) -> keras.Model:
    """Returns a model of boxes and scores from a model from `detector_logits`."""
    boxes, logits = model.output[..., :4], model.output[..., 4:]
    scores = keras.layers.Activation("sigmoid", dtype="float32", name="scores")(logits)
    joined = keras.layers.Concatenate(dtype="float32", name="objects")([boxes, scores])
    return with_loss_scaling(keras.Model(model.input, joined, name=model.name))


def _branch(levels: list[Any], classes: int, conv: Callable[..., Any], policy: Any) -> Any:
    """Returns boxes and logits (B, A, 4 + K); all levels share the convolutions."""
    parts = []
    logit = -math.log(1 / _INITIAL_SCORE - 1)
    distance = math.log(math.expm1(_INITIAL_DISTANCE))
    for part, channels, initial in (("boxes", 4, distance), ("scores", classes, logit)):
        outputs = levels
        for index in range(2):
            for layer in (
                conv(name=f"{part}_{index}"),
                layers.LayerNorm(dtype=policy, name=f"{part}_{index}_norm"),
                keras.layers.ReLU(dtype=policy, name=f"{part}_{index}_relu"),
            ):
                outputs = [layer(features) for features in outputs]
        bias = keras.initializers.Constant(initial)
        last = keras.layers.Conv2D(
            channels, 1, bias_initializer=bias, dtype="float32", name=f"{part}_last"
        )
        parts.append([last(features) for features in outputs])
    objects = []
    for stride, boxes, logits in zip(STRIDES, *parts, strict=True):
        decoded = layers.BoxDecoder(stride, dtype="float32", name=f"boxes_{stride}")(boxes)
        flat = keras.layers.Reshape((-1, classes), dtype="float32")(logits)
        objects.append(keras.layers.Concatenate(dtype="float32")([decoded, flat]))
    return keras.layers.Concatenate(axis=1, dtype="float32", name="cells")(objects)
