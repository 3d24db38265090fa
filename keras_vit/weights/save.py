"""Saving of model weights in the file formats of this package and other libraries."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_vit import arguments, models
from keras_vit.files import atomic_path, write_json
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import metadata
from keras_vit.weights.checkpoint import Checkpoint, Tensors, variables_of
from keras_vit.weights.configs import transformers
from keras_vit.weights.containers import npz, safetensors
from keras_vit.weights.dialects import dialect_for
from keras_vit.weights.infer_config import check_consistency, infer_fields
from keras_vit.weights.positions import grid_of

# Suffixes of each format; `huggingface` is a folder.
_SUFFIXES = {
    "npz": (".npz",),
    "timm": (".safetensors",),
    "huggingface": (),
    "torchvision": (".safetensors",),
    "keras": (".weights.h5", ".keras"),
}
FORMATS = tuple(_SUFFIXES)
_POOLINGS = {"gap": "avg", "none": ""}  # values of timm's `global_pool` that differ


def save_weights(
    model: keras.Model, path: str | os.PathLike[str], format: str | None = None
) -> None:
    """Saves the weights of a model in the format of this package or of another library.

    Writes are atomic. Variables are written unchanged, also under mixed precision as float32. A
    .safetensors file also contains the configuration, preprocessing and class names of the model,
    for `load_weights` and the constructors; other libraries ignore them.

    A warning lists properties that the file does not store: by default, models of timm and
    torchvision compute with the exact GELU and an epsilon of 1e-6, the official code with the tanh
    GELU. In hybrid models, the group norms of timm have an epsilon of 1e-5, those of this package
    1e-6, which changes logits by about 1e-4.

    Args:
        model: A model of this package.
        path: Path to write: `.npz`, `.safetensors`, `.weights.h5`, `.keras`, or a folder that
            does not exist yet.
        format: `"npz"`: the official code's file. `"timm"` and `"torchvision"`: a
            `.safetensors` file. `"huggingface"`: a folder for `from_pretrained` of the
            transformers library. `"keras"`: `.weights.h5`, or `.keras` for the whole
            model. By default inferred from the name.

    Raises:
        ValueError: Before anything is written: if name and format contradict each other, or the
            format does not support a tensor or requires a missing tensor.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> save_weights(model, "micro.npz")
        >>> Path("micro.npz").is_file()
        True
    """
    target = Path(path)
    format = format_of_target(target, format)
    if format == "keras":
        save_keras(model, target)
        return
    tensors = {name: _stored(variable) for name, variable in variables_of(model).items()}
    config = models.config_of(model)
    source = f"The model {model.name!r}"
    check_consistency(Checkpoint(source, tensors, infer_fields(tensors)), config)
    preprocessing = models.preprocessing_of(model, of_network=True)
    for note in write_weights(target, format, tensors, config, preprocessing):
        warnings.warn(note, UserWarning, stacklevel=2)


def format_of_target(path: Path, format: str | None) -> str:
    """Returns the format to write, by default inferred from the path, after checks."""
    formats = [name for name, ends in _SUFFIXES.items() if ends and path.name.endswith(ends)]
    if format is None:
        inferred = formats if formats or path.suffix else ["huggingface"]
        if len(inferred) != 1:
            raise ValueError(
                f"`format` must be one of {', '.join(map(repr, FORMATS))}, unless `path` ends in "
                ".npz, .weights.h5 or .keras, or has no suffix (a folder in the 'huggingface' "
                f"format). Received: format=None, path={str(path)!r}"
            )
        format = inferred[0]
    arguments.one_of("format", format, FORMATS)
    if format not in (formats or ["huggingface"]):
        ending = " or ".join(_SUFFIXES[format]) or "a folder name without a suffix"
        raise ValueError(
            f"`path` must end in {ending} for format={format!r}. Received: path={str(path)!r}"
        )
    if path.is_dir() or (format == "huggingface" and path.exists()):
        raise ValueError(
            "`path` must not be an existing folder. Remove it, or choose another name. "
            f"Received: path={str(path)!r}"
        )
    return format


def save_keras(model: keras.Model, path: Path) -> None:
    """Writes a `.keras` or `.weights.h5` file atomically, unlike Keras itself."""
    with atomic_path(path) as temporary:
        save = model.save if path.suffix == ".keras" else model.save_weights
        save(temporary)


def write_weights(
    path: Path,
    format: str,
    tensors: Tensors,
    config: models.ViTConfig,
    preprocessing: Preprocessing,
) -> list[str]:
    """Writes tensors in a library's format; returns notes on properties that are lost."""
    named = dialect_for(format, config).write(tensors, config)
    written = {_published_name(name, format, config): tensor for name, tensor in named.items()}
    file_metadata = metadata.describe(config, preprocessing)
    if format == "npz":
        npz.write_npz(path, written)
    elif format == "huggingface":
        content = transformers.write_config(config, preprocessing.class_names)
        image_config = transformers.write_preprocessing(preprocessing)
        with atomic_path(path) as folder:
            folder.mkdir()
            safetensors.write_safetensors(folder / "model.safetensors", written, file_metadata)
            write_json(folder / "config.json", content)
            write_json(folder / "preprocessor_config.json", image_config)
        return _hub_notes(preprocessing, config)
    else:
        safetensors.write_safetensors(path, written, file_metadata)
    return _notes(format, tensors, config)


def _stored(variable: keras.Variable) -> np.ndarray:
    """Returns a variable's value; bfloat16, which files do not support, becomes float32."""
    value = keras.ops.convert_to_numpy(variable)
    return value.astype("float32") if value.dtype.name == "bfloat16" else value


def _published_name(name: str, format: str, config: models.ViTConfig) -> str:
    """Returns the name that a tensor has in a library's files for this kind of model."""
    if format == "timm" and config.stem_blocks == ():
        return name.replace("backbone.stem.", "backbone.")
    if format != "huggingface" or not config.classes:
        return name
    if name.startswith("classifier."):
        return f"cls_{name}" if config.distillation_head else name
    if name.startswith("distillation_classifier."):
        return name
    # The encoder is a submodule of a model with a head.
    return f"{transformers.model_type_of(config)}.{name}"


def _hub_notes(preprocessing: Preprocessing, config: models.ViTConfig) -> list[str]:
    """Returns notes on what config.json and preprocessor_config.json cannot represent."""
    defaults = {"channels": "rgb", "antialias": True, "exif_orientation": True}
    lost = [name for name in defaults if getattr(preprocessing, name) != defaults[name]]
    text = ", ".join(f"{name}={getattr(preprocessing, name)!r}" for name in lost)
    notes = [f"Image processors of transformers cannot represent {text}."] if text else []
    if config.pooling not in ("none", pooling := transformers.pooling_of(config)):
        notes.append(
            "The format 'huggingface' does not record that the model uses "
            f"pooling={config.pooling!r}; transformers will use pooling={pooling!r}."
        )
    return notes


def _notes(format: str, tensors: Tensors, config: models.ViTConfig) -> list[str]:
    """Returns notes on fields that other programs would infer wrongly from the tensors."""
    read_back = infer_fields(tensors)
    read_back |= dialect_for(format, config).implied_fields(read_back)
    actual = config.get_config() | {"position_grid": config.grid}
    fields = ["gelu", "epsilon", *(["pooling"] if config.classes else [])]
    if format == "npz" and "position_grid" in read_back:  # read as a square grid if possible
        read_back["position_grid"] = grid_of(math.prod(config.grid)) or config.grid
        fields.append("position_grid")
    if format == "npz" and config.position_embedding == "none":  # read as fixed positions
        fields.append("position_embedding")
    lost = [name for name in fields if read_back[name] != actual[name]]
    notes = []
    if lost:
        ours = ", ".join(f"{name}={actual[name]!r}" for name in lost)
        theirs = ", ".join(f"{name}={read_back[name]!r}" for name in lost)
        timm_arguments = ", ".join(_timm_argument(name, config) for name in lost)
        notes.append(
            f"The format {format!r} does not record that the model uses {ours}; other libraries "
            f"will use {theirs}."
            + (f" Create timm's model with {timm_arguments}." if format == "timm" else "")
        )
    if format == "timm" and config.representation_size:
        notes.append(
            "timm has no representation layer, so it ignores `pre_logits`, and its outputs differ."
        )
    if format == "timm" and config.pooling == "token_gap":
        notes.append("timm has no pooling by class token and mean, so it cannot load the head.")
    return notes


def _timm_argument(name: str, config: models.ViTConfig) -> str:
    """Returns the argument of `timm.create_model` that sets a field."""
    if name == "gelu":
        name = {"tanh": "gelu_tanh", "exact": "gelu", "quick": "quick_gelu"}[config.gelu]
        return f'act_layer="{name}"'
    if name == "epsilon":
        return f"norm_layer=functools.partial(torch.nn.LayerNorm, eps={config.epsilon})"
    fc_norm = "" if config.norm_after_pooling else ", fc_norm=False"
    return f'global_pool="{_POOLINGS.get(config.pooling, config.pooling)}"{fc_norm}'
