"""Loading: read a file, fit it to the model, assign every variable exactly once."""

from __future__ import annotations

import dataclasses
import os
import warnings

import keras
import numpy as np

from keras_vit import models
from keras_vit.weights.checkpoint import ARCHITECTURE, Checkpoint, Tensors, variables_of
from keras_vit.weights.checkpoint_adaptation import fit
from keras_vit.weights.load_report import LoadReport, TensorReport
from keras_vit.weights.positions import PATCH_POSITIONS, POSITIONS
from keras_vit.weights.resolve import read_checkpoint

Names = tuple[str, ...]
Shapes = dict[str, tuple[int, ...]]

# The classifiers: they can be dropped, or start anew where they do not fit.
_PRE_LOGITS, _HEADS = "pre_logits/", ("head/", "distillation_head/")
# What a model does to the same weights: a difference is no error, but changes the numbers.
_COMPUTED = ("gelu", "epsilon", "pooling", "norm_after_pooling")


def load_weights(
    model: keras.Model,
    source: str | os.PathLike[str] | Checkpoint,
    *,
    reset_head: bool = False,
    resize_patches: bool = False,
    report: bool = False,
) -> LoadReport:
    """Loads a checkpoint into a model; nothing is assigned unless everything fits.

    Position embeddings on another grid are resized the way the source does it, and the kernel
    of the first layer is adapted to the model's number of channels. A classifier of another
    size, or behind another representation layer, is replaced by one of zeros.

    Args:
        model: A model of this package.
        source: Whatever the `weights` argument of the constructors takes (a path, a folder, a
            URL, `"hf://org/repo"`), or a checkpoint that was read before.
        reset_head: Whether the classifier starts from zeros even if the file's would fit.
        resize_patches: Whether the weights may be of a model with another patch size; the
            kernel is then resized as in FlexiViT.
        report: Whether the caller reads the report; without it a warning lists what was
            resized, reset or dropped, and where the model computes otherwise than the file's own
            (GELU, epsilon, pooling).

    Returns:
        The result for every tensor, a table when printed.

    Raises:
        ValueError: If the file cannot be read, is of another architecture, or lacks or adds
            tensors; the message lists both sides.

    Example:
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
    reset = _reset(shapes, tensors, reset_head)
    droppable = ("pooling/", _PRE_LOGITS, *_HEADS)
    dropped = tuple(n for n in tensors if n.startswith(droppable) and n not in shapes)
    for name in {*dropped, *reset} & tensors.keys():
        del tensors[name]
    used = tuple(name for name in shapes if name not in reset)
    _check_names({name: shapes[name] for name in used}, tensors, checkpoint.source)
    _check_numbers({name: tensors[name] for name in used}, checkpoint.source)
    for name in used:
        variables[name].assign(tensors.pop(name))  # popped, so that memory is freed on the way
    for name in reset:
        if name.startswith(_HEADS):
            variables[name].assign(np.zeros(shapes[name], "float32"))
    found = _report(checkpoint, shapes, resized, reset, dropped)
    found = dataclasses.replace(found, differing=_differing(config, checkpoint))
    for note in [] if report else found.notes():
        warnings.warn(note, UserWarning, stacklevel=2)
    return found


def _check_architecture(
    model: keras.Model, config: models.ViTConfig, checkpoint: Checkpoint
) -> None:
    ours_all = config.get_config()
    held = {name: checkpoint.inferred.get(name) for name in ARCHITECTURE}
    if ours_all["stem_blocks"] is None:
        held["stem_width"] = None
    told = [name for name in ARCHITECTURE if held[name] is not None or name == "stem_blocks"]
    differing = {name: held[name] for name in told if held[name] != ours_all[name]}
    if differing:
        theirs = ", ".join(f"{name}={value}" for name, value in differing.items())
        ours = ", ".join(f"{name}={ours_all[name]}" for name in differing)
        raise ValueError(
            f"The weights must belong to the architecture of the model. {checkpoint.source} has "
            f"{theirs}; the model {model.name!r} has {ours}. Choose the model that the file was "
            "made for."
        )


def _differing(config: models.ViTConfig, checkpoint: Checkpoint) -> dict[str, str]:
    """Returns a sentence for each field in which the model computes otherwise."""
    ours, theirs = config.get_config(), checkpoint.inferred
    fields = [name for name in _COMPUTED if theirs.get(name, ours[name]) != ours[name]]
    if config.pooling == "none":  # tokens are passed on, whatever was made of them
        fields = [name for name in fields if "pooling" not in name]
    return {
        name: f"The model computes with {name}={ours[name]!r}, {checkpoint.source} was made for "
        f"{name}={theirs[name]!r}"
        for name in fields
    }


def _reset(shapes: Shapes, tensors: Tensors, reset_head: bool) -> Names:
    """Returns the model's classifier variables that cannot take their values from the file."""

    def part(prefix: str) -> tuple[bool, Names]:
        ours = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
        theirs = {name: t.shape for name, t in tensors.items() if name.startswith(prefix)}
        return ours == theirs, tuple(ours)

    same_input, pre_logits = part(_PRE_LOGITS)
    reset = () if same_input else pre_logits
    for same_head, head in map(part, _HEADS):
        # A head is worth nothing behind another representation, even where its shape fits.
        if reset_head or not (same_head and same_input):
            reset += head
    return reset


def _report(
    checkpoint: Checkpoint, shapes: Shapes, resized: dict[str, str], reset: Names, dropped: Names
) -> LoadReport:
    origins = checkpoint.origin.names
    table = PATCH_POSITIONS if PATCH_POSITIONS in checkpoint.tensors else POSITIONS
    rows = []
    for name, shape in shapes.items():
        status = "reset" if name in reset else "resized" if name in resized else "used"
        key = name if name in checkpoint.tensors or status == "reset" else table
        stored = checkpoint.tensors.get(key)
        found = () if stored is None else (origins.get(key, (key,)), stored.shape)
        rows.append(TensorReport(status, name, shape, *found))
    rows += [
        TensorReport("dropped", "", (), origins.get(name, (name,)), checkpoint.tensors[name].shape)
        for name in dropped
    ]
    rows += [TensorReport("left", names=(name,)) for name in checkpoint.origin.left]
    return LoadReport(checkpoint.source, tuple(rows), tuple(dict.fromkeys(resized.values())))


def _check_numbers(tensors: Tensors, source: str) -> None:
    # The extremes of a tensor are NaN if one of its values is, and need no memory.
    bad = [n for n, t in tensors.items() if t.size and not np.isfinite([t.min(), t.max()]).all()]
    if bad:
        raise ValueError(
            f"Weights must be finite numbers. Received: {source}, with NaN or infinite values in "
            f"{len(bad)} tensors, such as {', '.join(bad[:5])}"
        )


def _check_names(shapes: Shapes, tensors: Tensors, source: str) -> None:
    missing = [name for name in shapes if name not in tensors]
    unused = [name for name in tensors if name not in shapes]
    wrong = [n for n, shape in shapes.items() if n in tensors and tensors[n].shape != shape]
    differing = [f"{name} {tensors[name].shape} for {shapes[name]}" for name in wrong]
    if missing or unused or differing:
        raise ValueError(
            f"The tensors of {source} must be those of the model. "
            f"Missing in the file: {', '.join(missing) or 'nothing'}. "
            f"Missing in the model: {', '.join(unused) or 'nothing'}. "
            f"Of another shape: {', '.join(differing) or 'nothing'}."
        )
