"""Reading of tensors and layer configurations from Keras files of any package.

No layers are built, so no code in a file runs: a `Lambda` layer is only a name here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.containers import formats, guards, h5
from keras_vit.weights.dialects import kecam, keras_hub
from keras_vit.weights.positions import split_for_image_size

Layer = Mapping[str, Any]
_LIBRARIES = {"kecam": kecam, "keras_hub": keras_hub}  # whose layers contain more fields


def is_ours(path: Path, kind: str) -> bool:
    """Returns whether a Keras 3 file contains a model of this package."""
    if kind == "keras":
        return any(map(is_metadata, read_layers(path, kind)))
    with guards.reading(path), h5py.File(path) as file:
        layers = file["layers"]  # may be a dataset of any length in an untrusted file
        # Only the name: no link is followed.
        return isinstance(layers, h5py.Group) and bool(layers.get("patch_encoder", getlink=True))


def is_metadata(layer: Layer) -> bool:
    """Returns whether a layer configuration is that of a `ModelMetadata` layer."""
    return layer.get("registered_name") == "keras_vit>ImageContract"


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a Keras 3 file (`.keras` or `.weights.h5`)."""
    if formats.format_of(path) != "keras":
        return h5.read_h5(path)
    with tempfile.TemporaryDirectory() as folder, guards.open_zip(path) as archive:
        inner = archive.extract("model.weights.h5", folder)
        try:
            return h5.read_h5(Path(inner))
        except guards.WeightFileError as error:
            raise guards.WeightFileError(
                str(error).replace(inner, f"{path}/model.weights.h5")
            ) from error


def read_layers(path: Path, kind: str) -> list[Layer]:
    """Returns the layer configurations stored in a Keras file."""
    if kind == "keras":
        with guards.open_zip(path) as archive:
            return list(_layers(guards.read_json(path, archive, "config.json")))
    if kind != "legacy_h5":
        return []
    with guards.reading(path), h5py.File(path) as file:
        if "model_config" in file.attrs:
            config = file.attrs["model_config"]
            if len(config) > guards.MAX_JSON_BYTES:
                what = f"model_config has over {guards.MAX_JSON_BYTES:,} bytes"
                raise guards.refused(path, f"too large: {what}")
            return list(_layers(json.loads(config)))
        return [{"name": name} for name in file]


def complete(checkpoint: Checkpoint, layers: Sequence[Layer]) -> Checkpoint:
    """Adds the `ViTConfig` fields in layer configurations to a checkpoint."""
    config_fields: dict[str, Any] = {}
    for layer in layers:
        config = layer.get("config", {})
        if str(layer.get("class_name")).endswith("TransformerBlock") and "num_heads" in config:
            config_fields["num_heads"] = config["num_heads"]
    if library := _LIBRARIES.get(checkpoint.dialect):
        config_fields |= library.read_layers(layers)
    checkpoint = checkpoint.replace(inferred=checkpoint.inferred | config_fields)
    sizes = [size for size in map(_image_size, layers) if size]
    return split_for_image_size(checkpoint, sizes[0]) if sizes else checkpoint


def _layers(model: Any) -> Iterator[Layer]:
    """Yields the configurations of a model, its layers and its nested models."""
    config = model.get("config", {})
    class_names = {key: model.get(key) for key in ("class_name", "registered_name")}
    yield {"name": config.get("name"), **class_names, "config": config}
    parts = [config["backbone"]] if "backbone" in config else config.get("layers", [])
    for part in parts:
        yield from _layers(part)


def _image_size(layer: Layer) -> tuple[int, int] | None:
    config = layer.get("config", {})
    shape = config.get("image_shape")  # of a backbone of KerasHub
    if layer.get("class_name") == "InputLayer":
        shape = (config.get("batch_shape") or config.get("batch_input_shape") or ())[1:]
    if not shape or len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape):
        return None
    return shape[0], shape[1]
