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

_CHUNK_SIZE = 2**16  # number of names that are converted at once


class Names(Sequence[str]):
    """Unique names of files, used like a tuple of strings in a third of its memory.

    Args:
        array: All names, different and sorted.
        rows: Indices in `array` of the names to use, in their order; by default all.
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
        for start in range(0, len(self), _CHUNK_SIZE):
            yield from self.array.take(self.rows[start : start + _CHUNK_SIZE]).to_pylist()

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Names) else other)

    def __reduce__(self) -> tuple[Any, ...]:
        used, rows = np.unique(self.rows, return_inverse=True)  # pickled without unused names
        return Names, (self.array.take(used), rows.astype(np.uint32))

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


def argsort(names: Sequence[str]) -> np.ndarray:
    """Returns the indices that sort the names."""
    if isinstance(names, Names):
        return np.argsort(names.rows, kind="stable")
    return np.array(sorted(range(len(names)), key=names.__getitem__), int)


def index_finder(names: Sequence[str]) -> Callable[[Iterable[str | bytes]], list[int]]:
    """Returns a function from names, also encoded, to their indices in `names`, -1 for others."""
    if not isinstance(names, Names):
        index = {os.fsencode(name): i for i, name in enumerate(names)}
        return lambda wanted: [index.get(os.fsencode(name), -1) for name in wanted]
    array = names.array.cast(pyarrow.binary())
    index_of_row = np.full(len(array) + 1, -1, np.int32)
    index_of_row[names.rows] = np.arange(len(names), dtype=np.int32)

    def find(wanted: Iterable[str | bytes]) -> list[int]:
        encoded = pyarrow.array(map(os.fsencode, wanted), pyarrow.binary())
        if not len(encoded):
            return []
        bounds = pyarrow.compute.min_max(encoded)
        first, last = (
            bisect.bisect_left(array, bounds[bound].as_py(), key=lambda name: name.as_py())
            for bound in ("min", "max")
        )
        rows = pyarrow.compute.index_in(encoded, array[first : last + 1]).cast("int64")
        return index_of_row[rows.fill_null(len(array) - first).to_numpy() + first].tolist()

    return find
