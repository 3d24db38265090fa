"""Predictions of a Keras model."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.data.pipelines import image_dataset
from keras_vit.export.predictor import checked
from keras_vit.models import inference


class KerasPredictor:
    """Classifies encoded images with a Keras model: decode, resize, scale, `model.predict`.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
            It predicts in float32 and probabilities, even if it lacks the softmax or sigmoid.
        name: Where it came from; by default the model's name.

    Raises:
        ValueError: If the model is no image classifier.

    Example:
        >>> import tensorflow as tf
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> png = tf.io.encode_png(np.zeros((5, 7, 3), "uint8")).numpy()
        >>> KerasPredictor(models.build(config)).predict([png]).round(3)
        array([[0.333, 0.333, 0.333]], dtype=float32)
    """

    def __init__(self, model: keras.Model, name: str | None = None) -> None:
        self.name = model.name if name is None else name
        self._network, self._contract = inference.prepare(model)
        self.labels = self._contract.labels or ()
        self.thresholds = self._contract.thresholds

    def predict(self, images: Sequence[bytes], batch_size: int = 32) -> np.ndarray:
        """Returns probabilities (N, classes), float32, for N encoded images."""
        with checked(images):
            batches = image_dataset(images, self._contract, batch_size=batch_size)
            return self._network.predict(batches, verbose=0)
