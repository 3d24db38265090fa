"""Names of many files, compact in memory."""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute

_AT_ONCE = 2**16  # names that are converted at once


class Names(Sequence[str]):
    """Unique names of files, used like a tuple of strings in a third of its memory.

    Args:
        array: All names, different and sorted.
        rows: Rows of `array` to use, in their order; by default all.
    """

    def __init__(self, array: pyarrow.StringArray, rows: np.ndarray | None = None) -> None:
        self.array = array
        self.rows = np.arange(len(array), dtype=np.uint32) if rows is None else rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self.subset(index))
        return self.array[int(self.rows[index])].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self.array.take(self.rows[start : start + _AT_ONCE]).to_pylist()

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Names) else other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        kept, rows = np.unique(self.rows, return_inverse=True)  # pickled without all other names
        return Names, (self.array.take(kept), rows.astype(np.uint32))

    def subset(self, indices: Any) -> Names:
        """Returns the names at `indices`, in that order."""
        if not isinstance(indices, slice):
            indices = np.asarray(indices, int)
        return Names(self.array, self.rows[indices])


def take(values: Any, indices: Sequence[int] | np.ndarray) -> Any:
    """Returns the names, or other values of files, at `indices`, as a sequence of the same kind."""
    if hasattr(values, "subset"):  # `Names`, or contents of files
        return values.subset(indices)
    return tuple(values[i] for i in indices)


def repeated(names: Sequence[str]) -> list[str]:
    """Returns the names that occur more than once."""
    if isinstance(names, Names):
        rows, counts = np.unique(names.rows, return_counts=True)
        return list(Names(names.array, rows[counts > 1]))
    return [name for name, count in Counter(names).items() if count > 1]


def order(names: Sequence[str]) -> np.ndarray:
    """Returns the indices that sort the names."""
    if isinstance(names, Names):
        return np.argsort(names.rows, kind="stable")
    return np.array(sorted(range(len(names)), key=names.__getitem__), int)


def finder(names: Sequence[str]) -> Callable[[Iterable[str]], list[int]]:
    """Returns a function from names to their indices in `names`; -1 for others."""
    if not isinstance(names, Names):
        index = {name: i for i, name in enumerate(names)}
        return lambda wanted: [index.get(name, -1) for name in wanted]
    array = names.array.cast(pyarrow.binary())
    of_row = np.full(len(array) + 1, -1, np.int32)
    of_row[names.rows] = np.arange(len(names), dtype=np.int32)

    def find(wanted: Iterable[str]) -> list[int]:
        found = pyarrow.array(map(os.fsencode, wanted), pyarrow.binary())
        if not len(found):
            return []
        ends = pyarrow.compute.min_max(found)
        first, last = (
            bisect.bisect_left(array, ends[end].as_py(), key=lambda name: name.as_py())
            for end in ("min", "max")
        )
        rows = pyarrow.compute.index_in(found, array[first : last + 1])
        return of_row[rows.cast("int64").fill_null(len(array) - first).to_numpy() + first].tolist()

    return find
