"""Files as other Keras packages write them, from the weights of a model of ours.

Letters: D hidden size; K heads, d = D / K size of a head; P, Q patch; C channels; T positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_vit.models import build, config_of
from keras_vit.weights import load_weights
from tests.helpers import tiny_model, weights_of

Arrays = dict[str, np.ndarray]
Layers = dict[str, Arrays]  # name of a layer: name of a variable: array


def source_model(**changes: Any) -> keras.Model:
    """A model with all weights random; T = 36, and 36 - 1 is no square."""
    return tiny_model(**changes)


class Pieces:
    """The weights of a model of ours in the shapes that most packages share."""

    def __init__(self, model: keras.Model) -> None:
        self.config = config_of(model)
        self._weights = weights_of(model)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def __getitem__(self, name: str) -> np.ndarray:
        return self._weights[name]

    @property
    def patch_kernel(self) -> np.ndarray:
        config = self.config
        return self["patch_encoder/projection/kernel"].reshape(
            *config.patch, config.channels, config.hidden_size
        )  # (P, Q, C, D)

    @property
    def positions(self) -> np.ndarray:
        table = self["patch_encoder/position"].reshape(-1, self.config.hidden_size)
        if "patch_encoder/prefix_position" not in self:
            return table[None]
        prefix = self["patch_encoder/prefix_position"]
        return np.concatenate([prefix, table[None]], axis=1)  # (1, T, D)

    def dense(self, name: str) -> Arrays:
        """Kernel and bias, as far as there are both."""
        both = {key: f"{name}/{key}" for key in ("kernel", "bias")}
        return {key: self[path] for key, path in both.items() if path in self}

    def norm(self, name: str) -> Arrays:
        return {"gamma": self[f"{name}/gamma"], "beta": self[f"{name}/beta"]}

    def qkv(self, block: str) -> dict[str, Arrays]:
        """Query, key and value apart: (D, D) and (D,) each."""
        whole = self.dense(f"{block}/attention/qkv")
        parts = {key: np.split(array, 3, axis=-1) for key, array in whole.items()}
        return {
            name: {key: parts[key][index] for key in parts}
            for index, name in enumerate(("query", "key", "value"))
        }


def numbered(layers: Layers) -> Layers:
    """Variables of each layer by number, as Keras 3 stores them."""
    return {
        layer: {str(index): array for index, array in enumerate(arrays.values())}
        for layer, arrays in layers.items()
    }


def write_keras_2(
    path: Path, layers: Mapping[str, Layers], model_config: Any = None, scope: str = ""
) -> Path:
    """Writes a legacy file: a group for each layer, in it its weights with all their scopes.

    `save_weights_to_hdf5_group` and `save_model_to_hdf5` of tf_keras/src/saving/legacy/
    hdf5_format.py, tf-keras 2.21.

    Args:
        path: The file to write.
        layers: For each layer of the model the weights by layer inside; "" for the layer itself.
        model_config: The model's configuration, for the file of a full model.
        scope: What stands behind the names, `":0"` in Keras 2.
    """
    with h5py.File(path, "w") as file:
        root = file
        if model_config is not None:
            file.attrs["model_config"] = json.dumps(model_config)
            root = file.create_group("model_weights")
        root.attrs["layer_names"] = [name.encode() for name in layers]
        for name, inner in layers.items():
            group = root.create_group(name)
            for scopes, arrays in inner.items():
                for key, array in arrays.items():
                    group["/".join(filter(None, (scopes, f"{key}{scope}")))] = array
    return path


def write_keras_3(path: Path, layers: Layers) -> Path:
    """Writes a `.weights.h5` file: variables by number, names of layers in attributes.

    `_save_state` of keras/src/saving/saving_lib.py, Keras 3.15. Groups have the names of Python
    attributes, which nobody reads.
    """
    with h5py.File(path, "w") as file:
        for layer, arrays in layers.items():
            group = file.require_group("layers")
            for part in layer.split("/"):
                group = group.require_group(f"a_{part}")
                group.require_group("vars").attrs["name"] = part
            for key, array in arrays.items():
                group["vars"][key] = array
    return path


def assert_same_weights(path: Path, model: keras.Model) -> None:
    """Loads a file into a model of this architecture: every weight is there, to the bit."""
    other = build(config_of(model))
    report = load_weights(other, path, report=True)
    expected = weights_of(model)
    assert report.of("used") == tuple(expected)
    assert (report.resized, report.of("reset"), report.of("dropped")) == ((), (), ())
    for name, weight in weights_of(other).items():
        np.testing.assert_array_equal(weight, expected[name], err_msg=name)
