"""Whole models of Keras, looked at before anything of them is built."""

from __future__ import annotations

import math
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.weights.containers.guards import ALLOWANCE, open_zip, read_json, refused


def load_model(path: str | os.PathLike[str], *, compile: bool = False) -> keras.Model:
    """Loads a `.keras` file as `keras.saving.load_model` does, once its claims are checked."""
    path = Path(path)
    if zipfile.is_zipfile(path):
        _check(path)
    return keras.saving.load_model(path, compile=compile)


def _check(path: Path) -> None:
    with open_zip(path) as archive:
        stored = sum(member.file_size for member in archive.infolist())
        names = {"config.json", "metadata.json"}.intersection(archive.namelist())
        found = {name: read_json(path, archive, name) for name in names}
    # In a thread of its own, whose state Keras forgets: there variables stay without values.
    with ThreadPoolExecutor(1) as thread:
        declared = thread.submit(_declared, found.get("config.json")).result()
    if declared > stored + ALLOWANCE:
        what = f"it describes a model of {declared:,} bytes and holds {stored:,}"
        raise refused(path, f"over-large: {what}")


def _declared(config: Any) -> int:
    """Returns the bytes of the variables of a model; 0 where Keras will say what is wrong."""
    try:
        with keras.StatelessScope(initialize_variables=False):
            variables = keras.saving.deserialize_keras_object(config).variables
            return sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in variables)
    except Exception:  # whatever a stranger's layer raises, when it is loaded again
        return 0
