"""Distances from an image's features to the nearest class mean, and nearest training images.

Letters: N images; B batch; D features; K classes with images.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models import cloning

NEIGHBORS = 3


class ScoredDense(keras.layers.Dense):
    """Classifier that also compares its input, (B, D), with the training images.

    `seen` contains these results of the last call, as the layers of `FeatureExtractor` contain
    their activations: `ood_score`, (B,), the Mahalanobis distance to the nearest class mean,
    divided by the square root of D, so that it is about 1 for images like the training images;
    and, given the features of `num_images` training images, `nearest`, the indices of the most
    similar ones, and `nearest_similarity`, the cosines, (B, 3), in descending order.
    """

    seen: dict[str, Any]

    def __init__(self, *args: Any, num_means: int, num_images: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_means, self.num_images, self.seen = num_means, num_images, {}

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]
        shapes = {
            **{"center": (size,), "whitening": (size, size), "means": (size, self.num_means)},
            "directions": (size, self.num_images),
        }
        for name, shape in shapes.items():
            fixed = {"name": name, "dtype": "float32", "trainable": False, "autocast": False}
            setattr(self, name, self.add_weight(shape=shape, **fixed))
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        features = ops.cast(inputs, "float32")
        whitened = ops.matmul(features - self.center, self.whitening)
        squared = ops.sum(ops.square(whitened), axis=-1, keepdims=True)
        squared += ops.sum(ops.square(self.means), axis=0) - 2 * ops.matmul(whitened, self.means)
        nearest = ops.maximum(ops.min(squared, axis=-1), 0)
        self.seen = {"ood_score": ops.sqrt(nearest / whitened.shape[-1])}
        if self.num_images:
            length = ops.sqrt(ops.sum(ops.square(features), axis=-1, keepdims=True))
            cosines = ops.matmul(features / ops.maximum(length, 1e-12), self.directions)
            found = ops.top_k(cosines, k=min(NEIGHBORS, self.num_images))
            self.seen |= {"nearest_similarity": found[0], "nearest": ops.cast(found[1], "int32")}
        return super().call(inputs, training=training)

    def set_weights(self, weights: Any) -> None:
        """Sets all weights, or only those of the classifier."""
        missing = len(self.weights) - len(weights)
        super().set_weights([*weights, *self.get_weights()[-missing:]] if missing else weights)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_means": self.num_means,
            "num_images": self.num_images,
        }


def with_scores(
    model: keras.Model,
    head: keras.layers.Dense,
    features: np.ndarray,
    labels: np.ndarray,
    neighbors: bool = False,
) -> keras.Model:
    """Returns a copy of a classifier that also compares images with the training images.

    Args:
        model: A functional or sequential classifier.
        head: Its classifier layer.
        features: Inputs of the classifier for the training images, (N, D).
        labels: Classes of the training images, (N,).
        neighbors: Whether to find the nearest training images.

    Reference: https://arxiv.org/abs/1807.03888, with the covariance of
    https://doi.org/10.1016/S0047-259X(03)00096-4
    """
    from sklearn.covariance import LedoitWolf  # takes seconds to import

    classes, index = np.unique(labels, return_inverse=True)
    features = np.asarray(features, np.float64)
    means = np.stack([features[index == k].mean(axis=0) for k in range(len(classes))])
    covariance = LedoitWolf(assume_centered=True).fit(features - means[index]).covariance_
    variances, axes = np.linalg.eigh(covariance)
    whitening = axes / np.sqrt(np.maximum(variances, np.finfo(np.float32).tiny))
    center, images = means.mean(axis=0), len(features) if neighbors else 0
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    directions = (features / np.maximum(lengths, 1e-12))[:images].T

    def changed(layer: Any) -> Any:
        if layer is not head:
            return None
        return cloning.clone_layer(layer, ScoredDense, num_means=len(classes), num_images=images)

    copy = cloning.clone(model, changed)
    [scored] = _scored(copy)
    distance = [center, whitening, ((means - center) @ whitening).T]
    scored.set_weights([*head.get_weights(), *distance, directions])
    return copy


def compared(model: keras.Model, features: np.ndarray) -> dict[str, np.ndarray]:
    """Returns `ScoredDense.seen` of a model from `with_scores` for inputs of its classifier."""
    [scored] = _scored(model)
    scored(features)
    return {name: np.asarray(values) for name, values in scored.seen.items()}


def last_seen(model: keras.Model) -> dict[str, Any]:
    """Returns `ScoredDense.seen` of the last call; nothing for a model without such a layer."""
    return scored[0].seen if (scored := _scored(model)) else {}


def _scored(model: keras.Model) -> list[ScoredDense]:
    return [layer for layer in cloning.layers_of(model) if isinstance(layer, ScoredDense)]
