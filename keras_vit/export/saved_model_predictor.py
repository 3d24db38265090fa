"""Predictions of a SavedModel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.export import contract_files
from keras_vit.export.predictor import checked, unreadable
from keras_vit.export.saved_model import ASSETS


class SavedModelPredictor:
    """Classifies encoded images with the `serving_default` of an exported SavedModel.

    Args:
        path: The version folder, the one that holds `saved_model.pb`.

    Raises:
        ValueError: If the SavedModel was not exported by keras_vit, or its labels or thresholds
            have been changed to another number of them.

    Example:
        >>> import tempfile
        >>> from keras_vit import models
        >>> from keras_vit.export import saved_model
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> folder = saved_model.write(models.build(config), Path(tempfile.mkdtemp()) / "1")
        >>> SavedModelPredictor(folder).labels
        ('0', '1', '2')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        description = Path(path) / ASSETS / contract_files.PREPROCESSING
        if not description.is_file():
            raise ValueError(
                "`path` must be a SavedModel exported by keras_vit, with "
                f"{ASSETS}/{contract_files.PREPROCESSING} in it. Received: path={self.name!r}"
            )
        self._contract = contract_files.parse(description.read_bytes(), self.name)
        # The texts beside it, which its graph reads, may have been changed since.
        assets = Path(path) / ASSETS
        count = len(self._contract.labels or ())
        self.labels = contract_files.lines(assets / contract_files.LABELS, count)
        self.thresholds = self._contract.thresholds
        if self.thresholds:
            self.thresholds = contract_files.numbers(assets / contract_files.THRESHOLDS, count)
        # The signature does not keep alive the object that owns the weights.
        self._model = tf.saved_model.load(self.name)
        self._classify = self._model.signatures["serving_default"]

    def predict(self, images: Sequence[bytes], batch_size: int = 32) -> np.ndarray:
        """Returns probabilities (N, classes), float32, for N encoded images."""
        found = []
        with checked(images):
            for start in range(0, len(images), batch_size):
                answer = self._classify(image_bytes=tf.constant(images[start : start + batch_size]))
                bad = np.flatnonzero(~answer["ok"].numpy())
                if len(bad):
                    index = start + int(bad[0])
                    why = answer["message"].numpy()[bad[0]].decode()
                    raise unreadable(index, images[index], why)
                found.append(answer["probabilities"].numpy())
        return np.concatenate(found)
