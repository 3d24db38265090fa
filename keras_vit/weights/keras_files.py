"""The dialect of Keras itself: `.weights.h5` and `.keras` files of this package's models."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_vit import models
from keras_vit.weights import containers
from keras_vit.weights.checkpoint import Checkpoint, traits_of, variables_of


def read_h5(path: Path) -> Checkpoint:
    """Reads the `.weights.h5` file of a model of this package.

    Args:
        path: The file.

    Returns:
        The checkpoint.

    Raises:
        ValueError: If the file is damaged or belongs to another kind of model.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "m.weights.h5"
        >>> models.build(models.size("Micro/4").replace(image_size=(8, 8))).save_weights(path)
        >>> read_h5(path).traits["position_grid"]
        (2, 2)
    """
    layers = containers.read_h5(path)
    if "patch_encoder/projection" not in layers:
        raise ValueError(
            f"The weight file {path} must come from a model of keras_vit. "
            f"Received: the layers {', '.join(sorted(layers)[:5])}, ..."
        )
    tensors = {
        f"{layer}/{_variable_name(layer, key)}": array
        for layer, arrays in layers.items()
        for key, array in arrays.items()
    }
    return Checkpoint(str(path), tensors, traits_of(tensors))


def read_keras(path: Path) -> Checkpoint:
    """Reads the `.keras` file of a model of this package, in safe mode.

    Args:
        path: The file.

    Returns:
        The checkpoint, with the preprocessing and labels that the file carries.

    Raises:
        ValueError: If the file is damaged or holds another kind of model.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "m.keras"
        >>> models.build(models.size("Micro/4").replace(image_size=(8, 8))).save(path)
        >>> read_keras(path).traits["num_layers"]
        4
    """
    if path.suffix == ".keras":
        model = keras.saving.load_model(path, compile=False)
    else:  # Keras goes by the name
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copyfile(path, Path(folder) / "model.keras")
            model = keras.saving.load_model(copy, compile=False)
    config = models.config_of(model)
    tensors = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    traits = config.get_config() | {"position_grid": config.grid}
    return Checkpoint(str(path), tensors, traits, models.preprocessing_of(model))


def _variable_name(layer: str, key: str) -> str:
    """The name of a variable that a layer stores by number."""
    if not key.isdecimal():
        return key
    own = layer.rsplit("/", maxsplit=1)[-1]
    if own == "pooling":
        return "probe"
    scales = own.startswith(("norm_", "gn", "scale_")) or own.endswith("norm")
    return (("gamma", "beta") if scales else ("kernel", "bias"))[int(key)]
