"""What became of each tensor of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class TensorReport:
    """What became of one variable of the model, or of one tensor of the file.

    Args:
        status: `"used"` as it is; `"resized"` for another grid, patch size or number of
            channels; `"reset"`: a classifier that starts anew; `"dropped"`: of the file, and
            the model has no place for it; `"left"` out deliberately, such as a decoder.
        variable: Path of the variable of the model, empty where there is none.
        shape: Shape of that variable.
        names: Names of the tensors in the file; none where the file has none.
        stored_shape: Shape of the tensor in our layout before it was resized.

    Example:
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
    """What became of each tensor of a file: every one stands in exactly one row.

    But for a table of all positions, which is split into that of the patches and that of the
    tokens in front of them, and stands in the rows of both.

    Args:
        source: The file.
        rows: One for each variable of the model, then those of the file that have none.
        resized: What was resized, as sentences.
        differing: Fields of `ViTConfig` in which the model computes otherwise than the file's
            own, and a sentence for each.

    Example:
        >>> row = TensorReport("reset", "head/kernel", (6, 5))
        >>> LoadReport("a.npz", (row,), ()).notes()
        ['head/kernel starts anew, not from a.npz.']
    """

    source: str
    rows: tuple[TensorReport, ...]
    resized: tuple[str, ...]
    differing: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of(self, status: str) -> tuple[str, ...]:
        """Returns the variables with this status, or tensors of the file that have no variable.

        Args:
            status: See `TensorReport`.
        """
        found = [row for row in self.rows if row.status == status]
        return tuple(row.variable or ", ".join(row.names) for row in found)

    def notes(self) -> list[str]:
        """Returns what a user should be told, as sentences.

        Returns:
            No sentence where the file was taken over as it is.
        """
        notes = [f"{sentence}." for sentence in (*self.resized, *self.differing.values())]
        if reset := self.of("reset"):
            verb = "starts" if len(reset) == 1 else "start"
            notes.append(f"{', '.join(reset)} {verb} anew, not from {self.source}.")
        if dropped := self.of("dropped"):
            verb = "is" if len(dropped) == 1 else "are"
            notes.append(f"{', '.join(dropped)} of {self.source} {verb} left out.")
        return notes

    def __str__(self) -> str:
        """Returns the table as text."""
        cells = [("", "variable", "shape", "tensors of the file", "shape there")]
        for row in self.rows:
            ours, theirs = (" x ".join(map(str, shape)) for shape in (row.shape, row.stored_shape))
            cells.append((row.status, row.variable, ours, ", ".join(row.names), theirs))
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        ]
        return "\n".join([self.source, *lines])
