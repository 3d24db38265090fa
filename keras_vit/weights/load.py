"""Loading of checkpoints into models."""

from __future__ import annotations

import os
import warnings

import keras
import numpy as np

from keras_vit import models
from keras_vit.weights.checkpoint import ARCHITECTURE, Checkpoint, Tensors, variables_of
from keras_vit.weights.checkpoint_adaptation import (
    HEADS,
    PRE_LOGITS,
    Names,
    Shapes,
    fit,
    variables_to_reset,
)
from keras_vit.weights.load_report import LoadReport, TensorReport
from keras_vit.weights.positions import PATCH_POSITIONS, POSITIONS
from keras_vit.weights.resolve import read_checkpoint

# Fields that change the outputs for the same weights: a difference is reported, not an error.
_COMPUTED = ("gelu", "epsilon", "pooling", "norm_after_pooling", "window_size", "global_blocks")


def load_weights(
    model: keras.Model,
    source: str | os.PathLike[str] | Checkpoint,
    *,
    reset_head: bool = False,
    resize_patches: bool = False,
    report: bool = False,
) -> LoadReport:
    """Loads a checkpoint into a model; checks all tensors before assigning any.

    Position embeddings of another grid are resized with the source library's method, and the kernel
    of the first layer is adapted to the model's number of channels. A classifier of another size,
    or one that follows a different representation layer, is reset to zeros.

    Args:
        model: A model of this package.
        source: Any `weights` argument of the constructors (a path, a folder, a URL,
            `"hf://org/repo"`), or a `Checkpoint`.
        reset_head: Whether the classifier is reset to zeros even if the file's has the same shape.
        resize_patches: Whether the file may have another patch size; the kernel is then resized
            as in FlexiViT.
        report: Whether the caller reads the report. Otherwise a warning lists resized, reset and
            dropped tensors, what was assumed when the file was read, and differences between the
            computation of the model and of the file's source (GELU, epsilon, pooling).

    Returns:
        The status of every tensor; it prints as a table.

    Raises:
        ValueError: If the file cannot be read, has another architecture, or has missing or
            additional tensors; the message lists both.

    Examples:
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> model.save_weights("m.weights.h5")
        >>> load_weights(model, "m.weights.h5", report=True).of("resized")
        ()
    """
    checkpoint = source if isinstance(source, Checkpoint) else read_checkpoint(source)
    config = models.config_of(model)
    _check_architecture(model, config, checkpoint)
    variables = variables_of(model)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    tensors, resized = fit(checkpoint, config, resize_patches=resize_patches)
    reset = variables_to_reset(shapes, tensors, reset_head)
    droppable = ("pooling/", PRE_LOGITS, *HEADS)
    dropped = tuple(n for n in tensors if n.startswith(droppable) and n not in shapes)
    for name in {*dropped, *reset} & tensors.keys():
        del tensors[name]
    used = tuple(name for name in shapes if name not in reset)
    _check_names({name: shapes[name] for name in used}, tensors, checkpoint.source)
    _check_numbers({name: tensors[name] for name in used}, checkpoint.source)
    for name in used:
        variables[name].assign(tensors.pop(name))  # popped to free memory during the loop
    for name in reset:
        if name.startswith(HEADS):
            variables[name].assign(np.zeros(shapes[name], "float32"))
    load_report = LoadReport(
        checkpoint.source,
        _rows(checkpoint, shapes, resized, reset, dropped),
        tuple(dict.fromkeys(resized.values())),
        _differing(config, checkpoint, has_head=any(name.startswith(HEADS) for name in used)),
        tuple(checkpoint.notes.values()),
    )
    for note in [] if report else load_report.notes():
        warnings.warn(note, UserWarning, stacklevel=2)
    return load_report


def _check_architecture(
    model: keras.Model, config: models.ViTConfig, checkpoint: Checkpoint
) -> None:
    model_fields = config.get_config()
    file_fields = {name: checkpoint.inferred.get(name) for name in ARCHITECTURE}
    if model_fields["stem_blocks"] is None:
        file_fields["stem_width"] = None
    known = {n: v for n, v in file_fields.items() if v is not None or n == "stem_blocks"}
    differing = {name: value for name, value in known.items() if value != model_fields[name]}
    if differing:
        theirs = ", ".join(f"{name}={value}" for name, value in differing.items())
        ours = ", ".join(f"{name}={model_fields[name]}" for name in differing)
        raise ValueError(
            f"The weights must match the architecture of the model. {checkpoint.source} has "
            f"{theirs}; the model {model.name!r} has {ours}. Choose a model that matches the "
            "weights."
        )


def _differing(config: models.ViTConfig, checkpoint: Checkpoint, has_head: bool) -> dict[str, str]:
    """Describes each `ViTConfig` field in which the model differs from the checkpoint."""
    ours, theirs = config.get_config(), checkpoint.inferred
    fields = [name for name in _COMPUTED if theirs.get(name, ours[name]) != ours[name]]
    if config.pooling == "none":  # the model returns the tokens, before any pooling
        fields = [name for name in fields if "pooling" not in name]
    activation = "classifier_activation"
    if has_head and {ours[activation], theirs.get(activation)} == {"softmax", "sigmoid"}:
        fields.append(activation)
    return {
        name: f"The model has {name}={ours[name]!r}, not {theirs[name]!r} as in {checkpoint.source}"
        for name in fields
    }


def _rows(
    checkpoint: Checkpoint, shapes: Shapes, resized: dict[str, str], reset: Names, dropped: Names
) -> tuple[TensorReport, ...]:
    origins = checkpoint.names
    table = PATCH_POSITIONS if PATCH_POSITIONS in checkpoint.tensors else POSITIONS
    rows = []
    for name, shape in shapes.items():
        status = "reset" if name in reset else "resized" if name in resized else "used"
        key = name if name in checkpoint.tensors or status == "reset" else table
        stored = checkpoint.tensors.get(key)
        origin = () if stored is None else (origins.get(key, (key,)), stored.shape)
        rows.append(TensorReport(status, name, shape, *origin))
    rows += [
        TensorReport("dropped", "", (), origins.get(name, (name,)), checkpoint.tensors[name].shape)
        for name in dropped
    ]
    rows += [TensorReport("left", names=(name,)) for name in checkpoint.ignored]
    return tuple(rows)


def _check_numbers(tensors: Tensors, source: str) -> None:
    # The minimum and maximum are NaN if any value is NaN, and need no temporary memory.
    bad = [n for n, t in tensors.items() if t.size and not np.isfinite([t.min(), t.max()]).all()]
    if bad:
        raise ValueError(
            f"Weights must be finite numbers. Received: {source}, with NaN or infinite values in "
            f"{len(bad)} tensors, such as {', '.join(bad[:5])}"
        )


def _check_names(shapes: Shapes, tensors: Tensors, source: str) -> None:
    missing = [name for name in shapes if name not in tensors]
    unused = [name for name in tensors if name not in shapes]
    misfits = [n for n, shape in shapes.items() if n in tensors and tensors[n].shape != shape]
    differing = [f"{name} {tensors[name].shape} instead of {shapes[name]}" for name in misfits]
    if missing or unused or differing:
        raise ValueError(
            f"The tensors of {source} must match those of the model. Missing in the file: "
            f"{', '.join(missing) or 'nothing'}. Missing in the model: "
            f"{', '.join(unused) or 'nothing'}. With a different shape: "
            f"{', '.join(differing) or 'nothing'}."
        )
