"""From whatever artefact is given to something that predicts."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from keras_vit import training
from keras_vit.export import saved_model
from keras_vit.export.keras_predictor import KerasPredictor
from keras_vit.export.predictor import Predictor
from keras_vit.export.saved_model_predictor import SavedModelPredictor
from keras_vit.export.tflite_predictor import TFLitePredictor
from keras_vit.weights.whole_models import load_model


def load_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Loads a classifier from any artefact of this package.

    Args:
        path: A `.keras` file; a `.tflite` file; a SavedModel: a version folder, or the folder
            of its versions, of which the newest is taken; or the folder of a training run, of
            which the weights of the last epoch are taken.

    Returns:
        A `Predictor`.

    Raises:
        ValueError: If there is nothing at `path`, or something else.

    Example:
        >>> import tempfile
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> path = tempfile.mkdtemp() + "/model.keras"
        >>> models.build(config).save(path)
        >>> load_predictor(path).labels
        ('0', '1', '2')
    """
    found = Path(path)
    if found.is_dir():
        weights = training.Run(found).last
        if weights.is_file():
            return _load_keras(weights)
        complete = [n for n in saved_model.versions(found) if _is_saved_model(found / str(n))]
        folder = found / str(complete[-1]) if complete else found
        if _is_saved_model(folder):
            return SavedModelPredictor(folder)
    elif found.is_file() and found.suffix == ".keras":
        return _load_keras(found)
    elif found.is_file() and found.suffix == ".tflite":
        return TFLitePredictor(found)
    problem = "none of them" if found.exists() else "nothing there"
    raise ValueError(
        "`path` must be a .keras file, a .tflite file, a SavedModel folder (or the folder of its "
        "versions), or the folder of a complete training run. "
        f"Received: path={os.fspath(path)!r}, {problem}"
    )


def _is_saved_model(folder: Path) -> bool:
    return (folder / "saved_model.pb").is_file()


def _load_keras(path: Path) -> Predictor:
    # Keras reports damage by whatever error its readers raise.
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`path` must be a complete .keras file. Received: path={str(path)!r}, which is damaged"
        )
    return KerasPredictor(load_model(path), name=str(path))
