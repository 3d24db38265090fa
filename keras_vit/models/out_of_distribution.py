"""Distances from an image's features to the nearest class mean, and nearest training images.

Letters: N images; B batch; D features; K classes with images.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_vit.models import cloning

NEIGHBORS = 3


class NewClasses(NamedTuple):
    """Rows of a classifier (kernel, then bias) for classes that it was not trained on.

    The kernel of a class is the mean of the trained kernels, plus `scale` times the difference of
    its kernel in a linear discriminant analysis (LDA) to the mean of theirs. As in LDA, the
    boundary with the most similar class passes through the middle of both means.

    Args:
        center: Mean of the class means, (D,).
        whitening: Matrix with orthogonal columns after which the covariance within classes is the
            identity, (D, D).
        scale: Ratio of the classifier's logits to those of the LDA, ().
        trained_rows: Rows of the trained classes, (K, D + 1).
        trained_means: Mean features of the trained classes, (K, D).
    """

    center: Any
    whitening: Any
    scale: Any
    trained_rows: Any
    trained_means: Any

    @classmethod
    def fitted(cls, features: Any, center: Any, whitening: Any, means: Any, rows: Any) -> Self:
        """Fits to training features (N, D), and means (K, D) and rows of the classes."""
        whitened = (means - center) @ whitening
        lda = (features - center) @ whitening @ whitened.T
        lda -= 0.5 * np.square(whitened).sum(axis=1)
        lda -= lda.mean(axis=1, keepdims=True)
        logits = features @ rows[:, :-1].T + rows[:, -1]
        scale = np.vdot(lda, logits) / np.vdot(lda, lda)
        return cls(center, whitening, scale, rows, means)

    def rows(self, means: Any) -> Any:
        """Returns the rows (B, D + 1) of classes with the mean features `means`, (B, D)."""
        whitened = ops.matmul(means - self.center, self.whitening)
        kernel = self.scale * ops.matmul(whitened, ops.transpose(self.whitening))
        kernel += self.trained_rows[:, :-1].mean(axis=0)
        logits = ops.matmul(means, self.trained_rows[:, :-1].T) + self.trained_rows[:, -1]
        similar = ops.top_k(logits, k=1)[1][:, 0]
        row = ops.take(self.trained_rows, similar, axis=0)
        middle = (means + ops.take(self.trained_means, similar, axis=0)) / 2
        bias = ops.sum((row[:, :-1] - kernel) * middle, axis=-1) + row[:, -1]
        return ops.concatenate([kernel, bias[:, None]], axis=-1)

    def ood_score(self, features: Any, rows: Any) -> Any:
        """Returns the `ood_score` (B, R) of `ScoredDense` for new classes, from rows (B, R, D + 1).

        Where a row is that of no class, the value has no meaning.
        """
        whitened = ops.matmul(features - self.center, self.whitening)
        kernels = (rows[..., :-1] - self.trained_rows[:, :-1].mean(axis=0)) / self.scale
        means = ops.matmul(kernels, self.whitening / np.square(self.whitening).sum(axis=0))
        squared = ops.sum(ops.square(whitened[:, None] - means), axis=-1)
        return ops.sqrt(squared / whitened.shape[-1])


class ScoredDense(keras.layers.Dense):
    """Classifier that also compares its input, (B, D), with the training images.

    `last_results` contains the results of the last call: `features`, the input; `ood_score`, (B,),
    the Mahalanobis distance to the nearest class mean, divided by the square root of D, so that it
    is about 1 for images like the training images; and, with the features of `num_images` training
    images, `nearest`, the indices of the most similar ones, and `nearest_similarity`, the cosines,
    (B, 3), in descending order.
    """

    last_results: dict[str, Any]

    def __init__(
        self,
        *args: Any,
        num_means: int,
        num_images: int = 0,
        new_classes: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.num_means, self.num_images, self.last_results = num_means, num_images, {}
        self.has_new_classes = new_classes

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]
        shapes = {
            **{"center": (size,), "whitening": (size, size), "means": (size, self.num_means)},
            "directions": (size, self.num_images),
        }
        if self.has_new_classes:
            rows = {"trained_rows": (self.num_means, size + 1)}
            shapes |= {"scale": (), **rows, "trained_means": (self.num_means, size)}
        for name, shape in shapes.items():
            settings = {"name": name, "dtype": "float32", "trainable": False, "autocast": False}
            setattr(self, name, self.add_weight(shape=shape, **settings))
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        features = ops.cast(inputs, "float32")
        whitened = ops.matmul(features - self.center, self.whitening)
        squared = ops.sum(ops.square(whitened), axis=-1, keepdims=True)
        squared += ops.sum(ops.square(self.means), axis=0) - 2 * ops.matmul(whitened, self.means)
        smallest = ops.maximum(ops.min(squared, axis=-1), 0)
        score = ops.sqrt(smallest / whitened.shape[-1])
        self.last_results = {"features": features, "ood_score": score}
        if self.num_images:
            length = ops.sqrt(ops.sum(ops.square(features), axis=-1, keepdims=True))
            cosines = ops.matmul(features / ops.maximum(length, 1e-12), self.directions)
            similarities, indices = ops.top_k(cosines, k=min(NEIGHBORS, self.num_images))
            nearest = ops.cast(indices, "int32")
            self.last_results |= {"nearest_similarity": similarities, "nearest": nearest}
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
            "new_classes": self.has_new_classes,
        }

    def new_classes(self) -> NewClasses:
        """Returns the `NewClasses` of the layer, as arrays."""
        names = NewClasses._fields
        return NewClasses(*(ops.convert_to_numpy(getattr(self, name)) for name in names))


def with_scores(
    model: keras.Model,
    head: keras.layers.Dense,
    features: np.ndarray,
    labels: np.ndarray,
    neighbors: bool = False,
    new_classes: bool = False,
) -> keras.Model:
    """Returns a copy of a classifier that also compares images with the training images.

    Args:
        model: A functional or sequential classifier.
        head: Its classifier layer.
        features: Inputs of the classifier for the training images, (N, D).
        labels: Classes of the training images, (N,).
        neighbors: Whether to find the nearest training images.
        new_classes: Whether to compute `NewClasses`.

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

    def scored_layer(layer: Any) -> Any:
        if layer is not head:
            return None
        sizes = {"num_means": len(classes), "num_images": images}
        return cloning.clone_layer(layer, ScoredDense, **sizes, new_classes=new_classes)

    copy = cloning.clone(model, scored_layer)
    [classifier] = _scored_layers(copy)
    weights = [center, whitening, ((means - center) @ whitening).T, directions]
    if new_classes:
        rows = class_rows(head)[classes]
        weights += NewClasses.fitted(features, center, whitening, means, rows)[2:]
    classifier.set_weights([*head.get_weights(), *weights])
    return copy


def class_rows(head: keras.layers.Dense) -> np.ndarray:
    """Returns kernel and bias of a classifier as one row for each class, (R, D + 1), float32."""
    kernel = np.asarray(ops.convert_to_numpy(head.kernel), np.float32)
    bias = np.zeros(kernel.shape[1]) if head.bias is None else ops.convert_to_numpy(head.bias)
    return np.concatenate([kernel, bias[None]], dtype=np.float32).T


def score_features(model: keras.Model, features: np.ndarray) -> dict[str, np.ndarray]:
    """Computes `ScoredDense.last_results` of a model from `with_scores`, for features (N, D)."""
    [classifier] = _scored_layers(model)
    classifier(features)
    return {name: np.asarray(values) for name, values in classifier.last_results.items()}


def last_results_of(model: keras.Model) -> dict[str, Any]:
    """Returns `ScoredDense.last_results` of a model, or `{}` if it has no such layer."""
    return layers[0].last_results if (layers := _scored_layers(model)) else {}


def new_classes(model: keras.Model) -> tuple[np.ndarray, NewClasses] | None:
    """Returns `class_rows` and `NewClasses` of a model from `with_scores`, or None without them."""
    layers = [layer for layer in _scored_layers(model) if layer.has_new_classes]
    return (class_rows(layers[0]), layers[0].new_classes()) if layers else None


def _scored_layers(model: keras.Model) -> list[ScoredDense]:
    return [layer for layer in cloning.layers_of(model) if isinstance(layer, ScoredDense)]
