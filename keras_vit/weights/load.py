"""Loading: read a file, fit it to the model, assign every variable exactly once."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import keras
import numpy as np

from keras_vit import models
from keras_vit.layers.position import resize_table
from keras_vit.weights import containers, flax, keras_files
from keras_vit.weights.checkpoint import (
    ARCHITECTURE,
    COLUMN,
    POSITION,
    ROW,
    Checkpoint,
    grid_of,
    variables_of,
)

# The classifier: it can be dropped, or start anew where it does not fit.
_PRE_LOGITS, _HEAD = "pre_logits/", "head/"


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of the tensors of a file.

    Args:
        source: The file.
        used: Variables that took their values from it.
        resized: Those among them that were resized, with both grids.
        reset: Variables of the classifier that start anew.
        dropped: Tensors of the file's classifier that the model has no place for.

    Example:
        >>> LoadReport("a.npz", ("cls",), (), ("head/kernel",), ()).notes()
        ['head/kernel starts anew, not from a.npz.']
    """

    source: str
    used: tuple[str, ...]
    resized: tuple[str, ...]
    reset: tuple[str, ...]
    dropped: tuple[str, ...]

    def notes(self) -> list[str]:
        """Returns what a user should be told, as sentences.

        Returns:
            No sentence where the file was taken over as it is.
        """
        notes = [f"{resized}." for resized in self.resized]
        if self.reset:
            names = ", ".join(self.reset)
            verb = "starts" if len(self.reset) == 1 else "start"
            notes.append(f"{names} {verb} anew, not from {self.source}.")
        if self.dropped:
            notes.append(f"{', '.join(self.dropped)} of {self.source} is left out.")
        return notes


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a weight file of any understood kind.

    Args:
        path: An official `.npz`, or a `.weights.h5` or `.keras` file of this package.

    Returns:
        The checkpoint in this package's names.

    Raises:
        ValueError: If the file is missing, damaged, or of a kind that is not understood.

    Example:
        >>> read_checkpoint("nowhere.npz")
        Traceback (most recent call last):
        ...
        ValueError: `weights` must be None or the path of an existing .npz, ...
    """
    path = Path(path)
    kind = containers.format_of(path)
    if kind == "h5":
        return keras_files.read_h5(path)
    if kind == "keras":
        return keras_files.read_keras(path)
    tensors = containers.read_npz(path)
    if not flax.is_flax(set(tensors)):
        raise ValueError(
            f"{path} must be a Vision Transformer in the official format. "
            f"Received: tensors named {', '.join(sorted(tensors)[:5]) or 'nothing'}, ..."
        )
    return flax.read(tensors, str(path))


def load_weights(
    model: keras.Model, source: str | os.PathLike[str] | Checkpoint, *, reset_head: bool = False
) -> LoadReport:
    """Loads a checkpoint into a model; nothing is assigned unless everything fits.

    Position embeddings on another grid are resized the way the source does it. A classifier
    of another size, or behind another representation layer, is replaced by one of zeros.

    Args:
        model: A model of this package.
        source: The path of a weight file, or a checkpoint that was read before.
        reset_head: Whether the classifier starts from zeros even if the file's would fit.

    Returns:
        What was used, resized, reset and dropped.

    Raises:
        ValueError: If the file cannot be read, is of another architecture, or lacks or adds
            tensors; the message lists both sides.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "m.weights.h5"
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> model.save_weights(path)
        >>> load_weights(model, path).notes()
        []
    """
    checkpoint = source if isinstance(source, Checkpoint) else read_checkpoint(source)
    _check_architecture(model, checkpoint)
    variables = variables_of(model)
    tensors = dict(checkpoint.tensors)
    resized = _fit_positions(model, tensors, checkpoint.source)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    reset = _reset(shapes, tensors, reset_head)
    classifier = [name for name in tensors if name.startswith((_PRE_LOGITS, _HEAD))]
    dropped = tuple(name for name in classifier if name not in shapes)
    for name in {*dropped, *reset} & tensors.keys():
        del tensors[name]
    used = tuple(name for name in shapes if name not in reset)
    _check_names({name: shapes[name] for name in used}, tensors, checkpoint.source)
    for name in used:
        variables[name].assign(tensors[name])
    for name in reset:
        if name.startswith(_HEAD):
            variables[name].assign(np.zeros(shapes[name], "float32"))
    return LoadReport(checkpoint.source, used, resized, reset, dropped)


def _check_architecture(model: keras.Model, checkpoint: Checkpoint) -> None:
    config = models.config_of(model).get_config()
    held = {name: checkpoint.traits.get(name) for name in ARCHITECTURE}
    differing = {
        name: value
        for name, value in held.items()
        if value is not None and _plain(value) != _plain(config[name])
    }
    if differing:
        theirs = ", ".join(f"{name}={_plain(value)}" for name, value in differing.items())
        ours = ", ".join(f"{name}={_plain(config[name])}" for name in differing)
        raise ValueError(
            f"The weights must belong to the architecture of the model. {checkpoint.source} has "
            f"{theirs}; the model {model.name!r} has {ours}. Choose the model that the file was "
            "made for."
        )


def _fit_positions(
    model: keras.Model, tensors: dict[str, np.ndarray], source: str
) -> tuple[str, ...]:
    """Brings the position tables to the model's grid, in place; returns what was resized."""
    config = models.config_of(model)
    new = config.grid
    notes = []
    for name, size in ((POSITION, new), (ROW, (new[0], 1)), (COLUMN, (1, new[1]))):
        if name not in tensors:
            continue
        table = tensors[name]
        # A square number of positions is a square grid: 24 x 24 patches are no model of 18 x 32.
        old = grid_of(table) or (size if len(table) == size[0] * size[1] else None)
        if old is None:
            raise ValueError(
                f"The position embedding of {source} has {len(table)} positions, which is neither "
                f"the model's grid {new} nor a square one, so it cannot be resized. Build the "
                "model at the image size that the file was trained at."
            )
        table = table.reshape(*old, -1)  # (h, w, D)
        if old != size:
            table = resize_table(table, size, config.position_interpolation)
            notes.append(f"Position embeddings resized from {old} to {size} patches")
        tensors[name] = keras.ops.convert_to_numpy(table)
    return tuple(notes)


def _reset(
    shapes: dict[str, tuple[int, ...]], tensors: dict[str, np.ndarray], reset_head: bool
) -> tuple[str, ...]:
    """Returns the model's classifier variables that cannot take their values from the file."""

    def part(prefix: str) -> tuple[bool, tuple[str, ...]]:
        ours = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
        theirs = {name: t.shape for name, t in tensors.items() if name.startswith(prefix)}
        return ours == theirs, tuple(ours)

    same_input, pre_logits = part(_PRE_LOGITS)
    same_head, head = part(_HEAD)
    # A head is worth nothing behind another representation, even where its shape fits.
    keep_head = same_head and same_input and not reset_head
    return (() if same_input else pre_logits) + (() if keep_head else head)


def _check_names(
    shapes: dict[str, tuple[int, ...]], tensors: dict[str, np.ndarray], source: str
) -> None:
    missing = [name for name in shapes if name not in tensors]
    unused = [name for name in tensors if name not in shapes]
    differing = [
        f"{name} {tensors[name].shape} for {shape}"
        for name, shape in shapes.items()
        if name in tensors and tensors[name].shape != shape
    ]
    if missing or unused or differing:
        raise ValueError(
            f"The tensors of {source} must be those of the model. "
            f"Missing in the file: {', '.join(missing) or 'nothing'}. "
            f"Missing in the model: {', '.join(unused) or 'nothing'}. "
            f"Of another shape: {', '.join(differing) or 'nothing'}."
        )


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, (list, tuple)) else value
