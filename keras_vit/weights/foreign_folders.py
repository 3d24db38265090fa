"""Reading of model folders of other libraries, which contain weights and a config.json.

The tensors do not determine the number of heads, the GELU variant, epsilon, class names and
preprocessing; config.json does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.configs import keras_hub, open_clip, timm, transformers
from keras_vit.weights.containers.guards import WeightFileError, read_json
from keras_vit.weights.positions import infer_prefix_positions, split_for_image_size

_RUN_MODEL = "last.keras"
# Libraries by a key of their configuration files, and the keys of preprocessing there.
_LIBRARIES = {"pretrained_cfg": timm, "model_cfg": open_clip}
_PREPROCESSING = ("pretrained_cfg", "preprocess_cfg")
# In order of preference.
_WEIGHT_FILES = (
    *("model.safetensors", "model.safetensors.index.json", "tf_model.h5"),
    *("pytorch_model.bin", "model.weights.h5"),
    *("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
)


def read_folder(folder: Path, read_file: Callable[[Path], Checkpoint]) -> Checkpoint:
    """Reads the checkpoint in a transformers, timm or KerasHub folder, or in a run folder."""
    if (folder / _RUN_MODEL).is_file():
        return read_file(folder / _RUN_MODEL)
    weight_files = [folder / name for name in _WEIGHT_FILES if (folder / name).is_file()]
    if not weight_files:
        names = sorted(file.name for file in folder.iterdir())
        raise ValueError(
            f"The folder {folder} must contain one of {', '.join(_WEIGHT_FILES)}, or {_RUN_MODEL}, "
            "which a run writes after its first epoch. Received: "
            f"{', '.join(names[:10]) or 'an empty folder'}"
        )
    config = _json(folder / "config.json")
    if {"class_name", "registered_name"} <= config.keys():  # a preset of KerasHub
        return keras_hub.read_preset(folder, _json)
    return configure(read_file(weight_files[0]), folder)


def configure(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Adds the content of the configuration files in a folder to a checkpoint."""
    try:
        name = "open_clip_config" if checkpoint.dialect == "open_clip" else "config"
        return _with_config(checkpoint, _json(folder / f"{name}.json"), folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"The configuration in {folder} must be valid: {error}") from error


def _with_config(checkpoint: Checkpoint, config: dict[str, Any], folder: Path) -> Checkpoint:
    """Adds the model fields, class names and preprocessing in config.json to a checkpoint."""
    preprocessing = checkpoint.preprocessing or Preprocessing()
    library = next((lib for key, lib in _LIBRARIES.items() if key in config), transformers)
    is_separate = library is transformers  # the preprocessing is in another file
    image_config = _json(folder / "preprocessor_config.json") if is_separate else config
    if is_separate and "model_type" not in config:
        if not image_config:
            return checkpoint
        config = {"model_type": "vit"}  # preprocessor_config.json alone
    config_fields = library.read_config(config, str(folder))
    image_size = library.read_image_size(config)
    labels = library.read_labels(config, checkpoint.inferred.get("classes", 0))
    # The metadata of this package's files are more exact than integer pixel sizes, so they have
    # priority unless preprocessor_config.json was changed.
    if not is_separate or image_config != transformers.write_preprocessing(preprocessing):
        preprocessing = library.read_preprocessing(image_config, preprocessing)
    if labels:
        preprocessing = dataclasses.replace(preprocessing, class_names=labels)
    if image_size:
        checkpoint = _with_image_size(checkpoint, image_size)
    key = next((key for key in _PREPROCESSING if key in config), "")
    is_specified = bool(image_config) if is_separate else "mean" in (config.get(key) or ())
    notes = {k: v for k, v in checkpoint.notes.items() if k != "preprocessing" or not is_specified}
    inferred = checkpoint.inferred | config_fields
    return checkpoint.replace(inferred=inferred, preprocessing=preprocessing, notes=notes)


def _with_image_size(checkpoint: Checkpoint, image_size: tuple[int, int]) -> Checkpoint:
    """Splits position embeddings of a non-square grid, using the image size in config.json.

    It is also the image size of a model with rotary positions, which have no table. A square grid
    only determines whether the prefix tokens have positions: the table is not split, because its
    resolution may differ from that in the configuration.
    """
    patch = checkpoint.inferred.get("patch_size")
    if patch is None or "image_size" in checkpoint.inferred:  # from this package's metadata
        return checkpoint
    if checkpoint.inferred["position_embedding"] == "rotary":
        return checkpoint.replace(inferred=checkpoint.inferred | {"image_size": image_size})
    grid = (image_size[0] // patch[0], image_size[1] // patch[1])
    if grid[0] == grid[1]:
        return infer_prefix_positions(checkpoint, grid)
    return split_for_image_size(checkpoint, image_size)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
    except WeightFileError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} must be a JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must contain a JSON object. Received: {type(content).__name__}")
    return content
