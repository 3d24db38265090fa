"""Loading of complete `.keras` models, with size checks before any layer is built."""

from __future__ import annotations

import math
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.weights.containers.guards import ALLOWANCE_BYTES, open_zip, read_json, refused


def load_model(path: str | os.PathLike[str], *, compile: bool = False) -> keras.Model:
    """Loads a `.keras` file with `keras.saving.load_model`, after checking its declared size."""
    path = Path(path)
    try:
        if zipfile.is_zipfile(path):
            _check(path)
        return keras.saving.load_model(path, compile=compile)
    except TypeError as error:
        reason = str(error).rpartition("\n")[2].partition(". ")[0]  # of a custom layer, the last
        raise ValueError(
            "`model` must be a file that keras.saving.load_model can load. "
            f"Received: {path}: {reason}"
        ) from error


def _check(path: Path) -> None:
    with open_zip(path) as archive:
        stored = sum(member.file_size for member in archive.infolist())
        names = {"config.json", "metadata.json"}.intersection(archive.namelist())
        content = {name: read_json(path, archive, name) for name in names}
    if not isinstance(content.get("config.json"), dict):
        raise refused(path, "not a Keras model: it contains no config.json")
    # In a separate thread, so that the global state of Keras is discarded; variables get no values.
    with ThreadPoolExecutor(1) as thread:
        declared = thread.submit(_declared_size, content["config.json"]).result()
    if declared > stored + ALLOWANCE_BYTES:
        what = f"it describes a model of {declared:,} bytes but contains {stored:,} bytes"
        raise refused(path, f"too large: {what}")


def _declared_size(config: dict[str, Any]) -> int:
    """Returns the size of a model's variables in bytes."""
    config = config | {"compile_config": None}  # as with compile=False, whose errors differ
    with keras.StatelessScope(initialize_variables=False):
        variables = keras.saving.deserialize_keras_object(config).variables
        return sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in variables)
