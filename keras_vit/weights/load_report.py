"""Report on a loaded checkpoint, with the status of each tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from keras_vit.arguments import text_table


@dataclasses.dataclass(frozen=True)
class TensorReport:
    """Loading status of one variable of the model, or of one tensor in the file.

    Args:
        status: `"used"`: unchanged; `"resized"`: to another grid, patch size or number of
            channels; `"reset"`: a newly initialized classifier; `"dropped"`: a tensor without a
            variable in the model; `"left"`: ignored deliberately, for example a decoder.
        variable: Path of the variable of the model, or an empty string.
        shape: Shape of the variable.
        names: Names of the tensors in the file, or an empty tuple.
        stored_shape: Shape of the tensor in this package's layout before resizing.

    Examples:
        >>> TensorReport("used", "head/bias", (5,), ("head.bias",), (5,)).status
        'used'
    """

    status: str
    variable: str = ""
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    stored_shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Report on a loaded checkpoint, with exactly one row per tensor.

    Only a joint position table appears in two rows: it is split into one table for the patches and
    one for the prefix tokens.

    Args:
        source: The file.
        rows: One row for each variable of the model, then the tensors without a variable.
        resized: Sentences about the resized tensors.
        differing: Fields of `ViTConfig` in which the model's computation differs from that of the
            file's source, with a sentence for each.
        read: Sentences on what was ignored or assumed when the file was read.

    Examples:
        >>> rows = [TensorReport("reset", name, (6, 5)) for name in ("head/kernel", "head/bias")]
        >>> LoadReport("a.npz", tuple(rows), ()).notes()
        ['The classifier (head/kernel, head/bias) is new: it is not loaded from a.npz.']
    """

    source: str
    rows: tuple[TensorReport, ...]
    resized: tuple[str, ...]
    differing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read: tuple[str, ...] = ()

    def of(self, status: str) -> tuple[str, ...]:
        """Returns the names of the variables, or unused tensors, with a given status.

        Args:
            status: See `TensorReport`.
        """
        rows = [row for row in self.rows if row.status == status]
        return tuple(row.variable or ", ".join(row.names) for row in rows)

    def notes(self) -> list[str]:
        """Returns sentences on reading, on resized, reset and dropped tensors, and on fields.

        Returns:
            The sentences; an empty list if the file was loaded unchanged.
        """
        notes = [f"{text}." for text in (*self.read, *self.resized, *self.differing.values())]
        if reset := self.of("reset"):
            new = ", ".join(reset)
            if all(name.startswith("head/") for name in reset):
                notes.append(f"The classifier ({new}) is new: it is not loaded from {self.source}.")
            else:
                verb = "starts" if len(reset) == 1 else "start"
                notes.append(f"{new} {verb} from initial values, not from {self.source}.")
        if dropped := self.of("dropped"):
            verb = "is" if len(dropped) == 1 else "are"
            notes.append(f"{', '.join(dropped)} of {self.source} {verb} not loaded.")
        return notes

    def __str__(self) -> str:
        """Returns the report as a text table."""
        cells = [("", "variable", "shape", "tensors of the file", "shape there")]
        for row in self.rows:
            ours, theirs = (" x ".join(map(str, shape)) for shape in (row.shape, row.stored_shape))
            cells.append((row.status, row.variable, ours, ", ".join(row.names), theirs))
        return "\n".join([self.source, *text_table(cells, "<<<<<")])
