"""Layer that stores the preprocessing and architecture of the model that contains it."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

from keras_vit.layers.base import BaseLayer
from keras_vit.preprocessing import Preprocessing


@keras.saving.register_keras_serializable(package="keras_vit", name="ImageContract")  # in files
class ModelMetadata(BaseLayer):
    """Identity layer that stores the preprocessing and architecture of its model.

    A `.keras` file stores only layers and their configuration. As the first layer of a model,
    this layer keeps class names, pixel scaling and image size through plain
    `keras.saving.load_model` in safe mode, `clone_model`, and inside other models. A
    `.weights.h5` file stores only variables; there the metadata is an array of JSON bytes.

    Args:
        preprocessing: Preprocessing of image files for the model, or its `get_config()`.
        architecture: Configuration that the model was built from, as plain values.

    Call arguments:
        images: Tensor of any shape.

    Returns:
        The same tensor.

    Raises:
        ValueError: If the images have another number of channels than those of the first call.

    Examples:
        >>> preprocessing = ModelMetadata(Preprocessing(class_names=("cat", "dog")))
        >>> ModelMetadata.from_config(preprocessing.get_config()).preprocessing.class_names
        ('cat', 'dog')
    """

    def __init__(
        self,
        preprocessing: Preprocessing | dict[str, Any] | None = None,
        architecture: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(preprocessing, dict):
            preprocessing = Preprocessing.from_config(preprocessing)
        self.preprocessing = preprocessing or Preprocessing()
        self.architecture = dict(architecture or {})

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.channels = input_shape[-1] if input_shape else None

    def call(self, images: Any) -> Any:
        # Keras accepts images of one channel for a model of several channels, and the reverse.
        if self.channels and images.shape[-1] not in (None, self.channels):
            raise ValueError(
                f"The channels of `images` must be {self.channels}, as in the shape of the model's "
                "input. Convert the images, or build a model with "
                f"input_shape=(height, width, {images.shape[-1]}). Received: images of shape "
                f"{tuple(images.shape)}"
            )
        return images

    def save_own_variables(self, store: Any) -> None:
        content = {
            "config": self.architecture,
            "preprocessing": self.preprocessing.get_config(),
        }
        store["config"] = np.frombuffer(json.dumps(content).encode(), "uint8")

    def load_own_variables(self, store: Any) -> None:
        """Ignores metadata in the file, so that loading weights keeps the model's metadata."""

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"preprocessing": self.preprocessing.get_config()}
