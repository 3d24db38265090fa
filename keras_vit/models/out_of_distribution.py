"""Out-of-distribution scores: distances from an image's features to the nearest class mean.

Letters: N images; B batch; D features; K classes with images.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops
from sklearn.covariance import LedoitWolf

from keras_vit.models import cloning


class ScoredDense(keras.layers.Dense):
    """Classifier that also computes the out-of-distribution score of its input, (B, D).

    The score is the Mahalanobis distance to the nearest class mean, divided by the square root of
    D, so that it is about 1 for images like the training images. `score` contains that of the last
    call, (B,), as the layers of `FeatureExtractor` contain their activations.
    """

    score: Any = None

    def __init__(self, *args: Any, num_means: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_means = num_means

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]
        shapes = {"center": (size,), "whitening": (size, size), "means": (size, self.num_means)}
        for name, shape in shapes.items():
            fixed = {"name": name, "dtype": "float32", "trainable": False, "autocast": False}
            setattr(self, name, self.add_weight(shape=shape, **fixed))
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        centered = ops.cast(inputs, "float32") - self.center
        whitened = ops.matmul(centered, self.whitening)
        squared = ops.sum(ops.square(whitened), axis=-1, keepdims=True)
        squared += ops.sum(ops.square(self.means), axis=0) - 2 * ops.matmul(whitened, self.means)
        nearest = ops.maximum(ops.min(squared, axis=-1), 0)
        self.score = ops.sqrt(nearest / whitened.shape[-1])
        return super().call(inputs, training=training)

    def set_weights(self, weights: Any) -> None:
        """Sets all weights, or only those of the classifier."""
        missing = len(self.weights) - len(weights)
        super().set_weights([*weights, *self.get_weights()[-missing:]] if missing else weights)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_means": self.num_means}


def with_scores(
    model: keras.Model, head: keras.layers.Dense, features: np.ndarray, labels: np.ndarray
) -> keras.Model:
    """Returns a copy of a classifier that also computes out-of-distribution scores.

    Args:
        model: A functional or sequential classifier.
        head: Its classifier layer.
        features: Inputs of the classifier for the training images, (N, D).
        labels: Classes of the training images, (N,).

    Reference: https://arxiv.org/abs/1807.03888, with the covariance of
    https://doi.org/10.1016/S0047-259X(03)00096-4
    """
    classes, index = np.unique(labels, return_inverse=True)
    features = np.asarray(features, np.float64)
    means = np.stack([features[index == k].mean(axis=0) for k in range(len(classes))])
    covariance = LedoitWolf(assume_centered=True).fit(features - means[index]).covariance_
    variances, axes = np.linalg.eigh(covariance)
    whitening = axes / np.sqrt(np.maximum(variances, np.finfo(np.float32).tiny))
    center = means.mean(axis=0)

    def changed(layer: Any) -> Any:
        if layer is not head:
            return None
        return cloning.clone_layer(layer, ScoredDense, num_means=len(classes))

    copy = cloning.clone(model, changed)
    [scored] = _scored(copy)
    distance = [center, whitening, ((means - center) @ whitening).T]
    scored.set_weights([*head.get_weights(), *distance])
    return copy


def scores_of(model: keras.Model, features: np.ndarray) -> np.ndarray:
    """Computes scores (N,) from inputs of the classifier of a model from `with_scores`, (N, D)."""
    [scored] = _scored(model)
    scored(features)
    return np.asarray(scored.score)


def last_scores(model: keras.Model) -> dict[str, Any]:
    """Returns the scores of the last call as `ood_score`; nothing for a model without scores."""
    return {"ood_score": scored[0].score} if (scored := _scored(model)) else {}


def _scored(model: keras.Model) -> list[ScoredDense]:
    return [layer for layer in cloning.layers_of(model) if isinstance(layer, ScoredDense)]
