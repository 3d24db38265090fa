"""The constructors that the stored runs name: one narrow block, so that all files are small."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import keras
import numpy as np

from keras_vit import models, zoo

FILES = Path(__file__).with_name("files")
NAME, NARROWER = "ViTNarrow", "ViTNarrower"
CONFIG = models.size("Micro/4").replace(
    hidden_size=8, num_layers=1, num_heads=2, mlp_dim=12, image_size=(16, 16)
)


@contextlib.contextmanager
def constructors() -> Iterator[None]:
    """Makes both names known to the constructors' table as long as it is entered."""
    configs = {NAME: CONFIG, NARROWER: CONFIG.replace(hidden_size=4, mlp_dim=6)}
    known = {name: zoo.Constructor(name, config) for name, config in configs.items()}
    with mock.patch.dict(zoo.CONSTRUCTORS, known):
        yield


def means(model: keras.Model) -> np.ndarray:
    """The mean of every weight, by path: answers tell of class token and position the sum."""
    weights = {w.path: keras.ops.convert_to_numpy(w).mean() for w in model.weights}
    return np.array([weights[path] for path in sorted(weights)])
