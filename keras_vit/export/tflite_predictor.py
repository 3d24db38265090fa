"""Predictions of a TFLite file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.image_reading import fit_within
from keras_vit.data.pipelines import read_ahead
from keras_vit.export import contract_files
from keras_vit.export.predictor import checked


class TFLitePredictor:
    """Classifies encoded images with a TFLite file.

    Images are decoded and resized here, by the preprocessing that the file carries; scaling,
    model and softmax or sigmoid run inside the file, as many images at a time as it was written
    for.

    Args:
        path: The `.tflite` file.

    Raises:
        ValueError: If the file was not exported by keras_vit, or is damaged.

    Example:
        >>> import tempfile
        >>> from keras_vit import models
        >>> from keras_vit.export import tflite
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> path = tflite.write(models.build(config), tempfile.mkdtemp() + "/model.tflite")
        >>> TFLitePredictor(path).labels
        ('0', '1', '2')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        try:
            with zipfile.ZipFile(path) as texts:
                description = texts.read(contract_files.PREPROCESSING)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(
                "`path` must be a complete TFLite file exported by keras_vit, with "
                f"{contract_files.PREPROCESSING} appended to it. Received: path={self.name!r}"
            ) from error
        self._contract = contract_files.parse(description, self.name)
        self.labels = self._contract.labels or ()
        self.thresholds = self._contract.thresholds
        self._interpreter = _interpreter(self.name)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]
        self._output = self._interpreter.get_output_details()[0]

    def predict(self, images: Sequence[bytes], batch_size: int = 32) -> np.ndarray:
        """Returns probabilities (N, classes), float32, for N encoded images."""
        at_once = int(self._input["shape"][0])
        with checked(images):
            # tf.data decodes the next images while the interpreter works on these.
            fitted = tf.data.Dataset.from_tensor_slices(list(images)).map(
                lambda encoded: fit_within(encoded, self._contract), tf.data.AUTOTUNE
            )
            batches = read_ahead(fitted.batch(at_once), max(1, batch_size // at_once))
            return np.concatenate([self._classify(batch) for batch in batches.as_numpy_iterator()])

    def _classify(self, images: np.ndarray) -> np.ndarray:
        given, asked = len(images), int(self._input["shape"][0])
        full = np.resize(images, (asked, *images.shape[1:]))  # the last batch, filled up
        self._interpreter.set_tensor(self._input["index"], full)
        self._interpreter.invoke()
        found = self._interpreter.get_tensor(self._output["index"])[:given]
        scale, zero = self._output["quantization"]
        return (found.astype(np.float32) - zero) * np.float32(scale) if scale else found


def _interpreter(path: str) -> Any:
    try:
        from ai_edge_litert import interpreter
    except ImportError:
        # Deprecated in favour of the package above, which is optional.
        interpreter = tf.lite
    return interpreter.Interpreter(model_path=path, num_threads=min(4, os.cpu_count() or 1))
