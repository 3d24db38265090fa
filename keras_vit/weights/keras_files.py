"""Reading of `.weights.h5` and `.keras` files that contain this package's models."""

from __future__ import annotations

import json
from pathlib import Path

from keras_vit.weights import foreign_keras, metadata
from keras_vit.weights.checkpoint import Checkpoint, Tensors
from keras_vit.weights.containers import h5
from keras_vit.weights.containers.guards import reading, refused
from keras_vit.weights.infer_config import infer_fields

# HDF5 groups of `ModelMetadata`, which Keras names by class. The second name is that of earlier
# versions; files of the first versions have no group.
_METADATA = ("model_metadata", "image_contract")


def read_h5(path: Path) -> Checkpoint:
    """Reads a `.weights.h5` file of one of this package's models."""
    stored = h5.read_h5(path)
    if not any(name.startswith("patch_encoder/projection/") for name in stored):
        layers = sorted({name.rpartition("/")[0] for name in stored})
        raise ValueError(
            f"The weight file {path} must come from a model of keras_vit. "
            f"Received: the layers {', '.join(layers[:5])}, ..."
        )
    texts = [stored[f"{layer}/config"] for layer in _METADATA if f"{layer}/config" in stored]
    text = texts[0].astype("uint8").tobytes().decode("utf-8", "replace") if texts else None
    return _checkpoint(path, stored, "", text)


def read_keras(path: Path) -> Checkpoint:
    """Reads a `.keras` file whose model is, or contains, a model of this package.

    No layers are built and no code in the file runs; the configuration is validated.
    """
    layers = foreign_keras.read_layers(path, "keras")
    if any(layer["class_name"] == "Lambda" for layer in layers):
        raise refused(path, "suspicious: it has a Lambda layer, whose code is unsafe to run")
    stored = foreign_keras.read_tensors(path)
    inside = "patch_encoder/projection/0"
    prefixes = [name.removesuffix(inside) for name in stored if name.endswith(inside)]
    if len(prefixes) != 1:
        raise refused(path, f"not a file of one keras_vit model: it contains {len(prefixes)}")
    config = next(filter(foreign_keras.is_metadata, layers))["config"]
    content = {"config": config.get("architecture"), "preprocessing": config.get("preprocessing")}
    return _checkpoint(path, stored, prefixes[0], json.dumps(content))


def _checkpoint(path: Path, stored: Tensors, prefix: str, text: str | None) -> Checkpoint:
    """Returns the checkpoint of the tensors below `prefix`, with the other tensors of the file."""
    tensors: Tensors = {}
    others: Tensors = {}
    with reading(path):
        for name, array in stored.items():
            layer, key = name.removeprefix(prefix).rsplit("/", maxsplit=1)
            if layer not in _METADATA:
                group = tensors if name.startswith(prefix) else others
                group[f"{layer}/{_variable_name(layer, key)}"] = array
        checkpoint = Checkpoint(str(path), tensors, infer_fields(tensors))
    if text is not None:
        checkpoint = metadata.extend(checkpoint, {metadata.KEY: text})
    return checkpoint.replace(tensors=others | checkpoint.tensors)


def _variable_name(layer: str, key: str) -> str:
    """Returns the name of a variable that Keras stores by its index in the layer."""
    name = layer.rsplit("/", maxsplit=1)[-1]
    has_gamma = name.startswith(("norm_", "gn", "scale_")) or name.endswith("norm")
    names = {"0": "gamma", "1": "beta"} if has_gamma else {"0": "kernel", "1": "bias"}
    if name == "pooling":
        names = {"0": "probe"}
    return names.get(key, key)  # further variables are those of layers of other packages
