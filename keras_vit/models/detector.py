"""Object detectors on a Vision Transformer.

Letters: B batch; H, W image height and width; E width of the adapter; K classes; A cells of all
sizes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import keras

from keras_vit import arguments, layers
from keras_vit.models.dense import WIDTH, fixed_size, quarter_size_features
from keras_vit.models.metadata import config_of

STRIDES = (8, 16, 32)  # of the cells, in pixels
BRANCHES = ("one_to_one", "one_to_many")
_FIRST_SCORE = 0.01  # before training; https://arxiv.org/abs/1708.02002
_FIRST_DISTANCE = 2.0  # of a box's edges, in cells


def Detector(  # noqa: N802
    backbone: keras.Model,
    classes: int,
    width: int = WIDTH,
    name: str = "detector",
    dtype: Any = None,
) -> keras.Model:
    """Builds a model that detects objects, on a Vision Transformer.

    Each cell of 8, 16 and 32 pixels predicts one box and a score for each class. After training
    with one cell for each object, there is one box for each object: the boxes with high scores are
    the objects, and no others need to be suppressed.

    Args:
        backbone: A model of this package; its head, if it has one, is left out.
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
    return detections(with_branches(backbone, classes, width, name, dtype))


def with_branches(
    backbone: keras.Model,
    classes: int,
    width: int = WIDTH,
    name: str = "detector",
    dtype: Any = None,
) -> keras.Model:
    """Builds the model that is trained, whose outputs (B, 2, A, 4 + K) are of both branches.

    The branch "one_to_many", which has several cells for each object, trains the features; the
    branch "one_to_one" is trained on these features. Scores are logits.

    Reference: https://arxiv.org/abs/2405.14458
    """
    arguments.positive_int("classes", classes)
    policy = dtype or keras.config.dtype_policy()
    fixed_size(backbone)
    norm = functools.partial(layers.LayerNorm, config_of(backbone).epsilon, dtype=policy)
    features = quarter_size_features(backbone, arguments.positive_int("width", width), policy)
    levels = []
    for stride in STRIDES:
        step = keras.layers.SeparableConv2D(
            width, 3, 2, "same", activation="relu", dtype=policy, name=f"level_{stride}"
        )
        features = norm(name=f"level_{stride}_norm")(step(features))
        levels.append(features)
    outputs = [
        _branch(levels if branch == "one_to_many" else _detached(levels), classes, branch, policy)
        for branch in BRANCHES
    ]
    return keras.Model(backbone.input, keras.ops.stack(outputs, axis=1), name=name)


def detections(model: keras.Model) -> keras.Model:
    """Returns the model of boxes and scores (B, A, 4 + K) in a model from `with_branches`."""
    output = model.get_layer("one_to_one").output
    boxes, logits = output[..., :4], output[..., 4:]
    scores = keras.layers.Activation("sigmoid", dtype="float32", name="scores")(logits)
    joined = keras.layers.Concatenate(dtype="float32", name="objects")([boxes, scores])
    return keras.Model(model.input, joined, name=model.name)


def _detached(levels: list[Any]) -> list[Any]:
    return [keras.ops.stop_gradient(features) for features in levels]


def _branch(levels: list[Any], classes: int, name: str, policy: Any) -> Any:
    """Returns boxes and logits (B, A, 4 + K); all levels share the convolutions."""
    parts: dict[str, list[Any]] = {}
    logit = -math.log(1 / _FIRST_SCORE - 1)
    distance = math.log(math.expm1(_FIRST_DISTANCE))
    for part, channels, first in (("boxes", 4, distance), ("scores", classes, logit)):
        tower = []
        for index in range(2):
            tower += [
                keras.layers.SeparableConv2D(
                    levels[0].shape[-1],
                    3,
                    padding="same",
                    activation="relu",
                    dtype=policy,
                    name=f"{name}_{part}_{index}",
                ),
                layers.LayerNorm(dtype=policy, name=f"{name}_{part}_{index}_norm"),
            ]
        bias = keras.initializers.Constant(first)
        last = keras.layers.Conv2D(
            channels, 1, bias_initializer=bias, dtype="float32", name=f"{name}_{part}"
        )
        parts[part] = []
        for features in levels:
            for layer in (*tower, last):
                features = layer(features)
            parts[part].append(features)
    found = []
    for stride, boxes, logits in zip(STRIDES, parts["boxes"], parts["scores"], strict=True):
        decoded = layers.BoxDecoder(stride, dtype="float32", name=f"{name}_boxes_{stride}")(boxes)
        flat = keras.layers.Reshape((-1, classes), dtype="float32")(logits)
        found.append(keras.layers.Concatenate(dtype="float32")([decoded, flat]))
    return keras.layers.Concatenate(axis=1, dtype="float32", name=name)(found)
