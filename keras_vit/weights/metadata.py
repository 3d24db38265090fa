"""Model configuration and preprocessing in the metadata of safetensors files.

Tensors do not determine the number of heads, the GELU variant, epsilon, class names or
preprocessing. This metadata entry restores a model completely; other libraries ignore it.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from keras_vit.constants import MAX_PIXELS
from keras_vit.models import ViTConfig
from keras_vit.preprocessing import NAMES_IN_FILES, Preprocessing
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.infer_config import check_consistency
from keras_vit.weights.positions import POSITION, POSITIONS, PREFIX_POSITION

KEY = "keras_vit"
_LONGEST = 4 * 2**20  # the class names of ImageNet-21k take a tenth of this
_MOST_TOKENS = 2**16  # 4096 pixels in patches of 16; the attention takes 17 GB per head


def describe(config: ViTConfig, preprocessing: Preprocessing) -> dict[str, str]:
    """Returns the safetensors metadata for a model configuration and preprocessing."""
    content = {"config": config.get_config(), "preprocessing": preprocessing.get_config()}
    return {"format": "pt", KEY: json.dumps(content)}


def extend(checkpoint: Checkpoint, metadata: Mapping[str, str]) -> Checkpoint:
    """Adds the configuration and preprocessing in a file's metadata to a checkpoint."""
    if KEY not in metadata:
        return checkpoint
    remedy = "Update keras_vit, or save the file again without this metadata."
    try:
        if len(metadata[KEY]) > _LONGEST:
            raise ValueError(f"longer than {_LONGEST:,} characters")
        content = json.loads(metadata[KEY])
        config = ViTConfig(**_checked(ViTConfig, content["config"]))
        pixels, tokens = math.prod(config.default_image_size), math.prod(config.grid)
        if pixels > MAX_PIXELS or tokens > _MOST_TOKENS:
            raise ValueError(
                f"image_size={config.image_size} and a grid of {config.grid}; at most "
                f"{MAX_PIXELS:,} pixels and {_MOST_TOKENS:,} patches are allowed"
            )
        preprocessing = Preprocessing.from_config(_checked(Preprocessing, content["preprocessing"]))
        if preprocessing.task:
            remedy = (
                f"Layers for the task {preprocessing.task!r} cannot be left out: pass the weights "
                "that its run started from."
            )
        tensors = check_consistency(checkpoint, config)
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"The metadata {KEY!r} of {checkpoint.source} must be readable by this version "
            f"of keras_vit and match the weights. {remedy} Received: {type(error).__name__}: "
            f"{str(error)[:500]}"
        ) from error
    names = dict(checkpoint.names)
    table = names.pop(POSITIONS, ())
    names |= {name: table for name in (POSITION, PREFIX_POSITION) if name in tensors}
    ignored = checkpoint.ignored + (() if POSITION in tensors else table)  # computed positions
    return checkpoint.replace(
        tensors=tensors,
        inferred=config.get_config() | {"position_grid": config.grid},
        preprocessing=preprocessing,
        names=names,
        ignored=ignored,
        notes={},
    )


def _checked(kind: type, values: Any) -> dict[str, Any]:
    """Returns the fields in a JSON object, after checking that their types are valid."""
    if not isinstance(values, dict):
        raise TypeError(f"{kind.__name__} is stored as {type(values).__name__}")
    hints = typing.get_type_hints(kind)
    if kind is Preprocessing:
        hints[NAMES_IN_FILES] = hints.pop("class_names")
    if wrong := [n for n, value in values.items() if n not in hints or not _fits(value, hints[n])]:
        raise ValueError(f"unknown fields, or fields of the wrong type: {', '.join(wrong)}")
    return values


def _fits(value: Any, hint: Any) -> bool:
    """Returns whether a JSON value matches the type hint of a field."""
    if isinstance(hint, types.UnionType):
        return any(_fits(value, option) for option in hint.__args__)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            return False
        items = hint.__args__
        items = items[:1] * len(value) if items[-1] is Ellipsis else items
        return len(value) == len(items) and all(map(_fits, value, items))
    return type(value) is hint or (hint is float and type(value) is int)  # excludes bool
