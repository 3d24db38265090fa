"""Conversion of weight files between libraries, without building a model."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from pathlib import Path
from typing import Any

from keras_vit import models
from keras_vit.models.vit import default_preprocessing
from keras_vit.weights.checkpoint import PROJECTION, Checkpoint
from keras_vit.weights.infer_config import check_consistency, config_of
from keras_vit.weights.load import load_weights
from keras_vit.weights.resolve import read_checkpoint
from keras_vit.weights.save import format_of_target, save_keras, write_weights


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    format: str | None = None,
    *,
    model: str | None = None,
    overwrite: bool = False,
    **known: Any,
) -> None:
    """Converts a checkpoint to another library's format, with bit-identical values.

    Nothing is resized. Class names and preprocessing are kept if the target format stores them. A
    warning lists lost properties of the model, as in `save_weights`.

    Args:
        source: Any source of `read_checkpoint`: a path, a name of published weights, a repository
            on the hub, a URL.
        target: Path to write, see `save_weights`.
        format: Format of the target, see `save_weights`; by default inferred from its name.
        model: Name of the constructor, for example `"ViTB16"`, for the names of published weights.
        overwrite: Whether an existing target is replaced; the source is never replaced.
        **known: Fields of `ViTConfig` that the source does not contain: `num_heads` for PyTorch
            files of unpublished sizes, `patch_size` for `.weights.h5`, `image_size` if the grid
            of patches is not square.

    Raises:
        ValueError: Before anything is written: if the source cannot be read, does not determine
            the configuration or contradicts `known`, or the target does not support the model.
        ConnectionError: If the source cannot be downloaded.

    Examples:
        >>> from keras_vit import models
        >>> models.build(models.size("Micro/4").replace(image_size=(8, 8))).save("m.keras")
        >>> convert("m.keras", "m.npz")
        >>> convert("m.npz", "m", "huggingface")
        >>> sorted(path.name for path in Path("m").iterdir())
        ['config.json', 'model.safetensors', 'preprocessor_config.json']
    """
    path = Path(target)
    format = format_of_target(path, format)
    if path.exists() and path.resolve().is_relative_to(os.path.realpath(source)):
        raise ValueError(
            "`target` must differ from `source`, which is never changed. Received: "
            f"source={str(source)!r}, target={str(target)!r}"
        )
    if path.exists() and not overwrite:
        raise ValueError(
            "`target` must not exist: choose another name, or replace the file with "
            f"`overwrite=True` (`--overwrite`). Received: target={str(target)!r}"
        )
    checkpoint = read_checkpoint(source, model)
    config = _config(checkpoint, known)
    tensors = check_consistency(checkpoint, config)
    base = default_preprocessing(config)
    preprocessing = checkpoint.preprocessing or base
    if "image_size" not in checkpoint.inferred:  # then the source's preprocessing has no size
        preprocessing = dataclasses.replace(preprocessing, size=base.size)
    if format == "keras":
        network = models.build(config, preprocessing=preprocessing)
        load_weights(network, checkpoint.replace(tensors=tensors))
        save_keras(network, path)
        return
    notes = write_weights(path, format, tensors, config, preprocessing)
    for note in (*checkpoint.notes.values(), *notes):
        warnings.warn(note, UserWarning, stacklevel=2)


def _config(checkpoint: Checkpoint, known: dict[str, Any]) -> models.ViTConfig:
    """Returns the configuration of the model that the source checkpoint was saved from."""
    inferred = checkpoint.inferred
    known = {"classifier_activation": inferred.get("classifier_activation", "softmax")} | known
    config = config_of(checkpoint, **known)
    if "channels" not in inferred | known:  # a .weights.h5 file determines only the product
        channels = len(checkpoint.tensors[PROJECTION]) // math.prod(config.patch)
        config = config.replace(channels=max(1, channels))
    stored_grid = inferred.get("position_grid")
    if "image_size" in inferred and "image_size" not in known and stored_grid != config.grid:
        config = config.replace(position_grid=stored_grid)  # files of this package contain both
    return config
