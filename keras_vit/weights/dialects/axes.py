"""Notation for the tensor layouts of two libraries: "DCPQ -> (PQC)D" transposes and merges axes.

Letters: D hidden size; E = D, V = 2D, U = 3D; K heads, d size of a head; M width of the MLP, W = M,
or 2M if it is gated; P, Q patch height and width; C channels; T positions; N rows of another table;
G registers; R representation size; F inputs and Y outputs of the classifier. The sizes of lower-
case a, b, i, o (rows, columns, inputs, outputs of a convolution in a ResNet) differ between
tensors.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

Sizes = Mapping[str, int]

_LOCAL = frozenset("abio")
# Letters that are multiples of another letter.
_MULTIPLES = {"E": ("D", 1), "V": ("D", 2), "U": ("D", 3)}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Axes of a tensor in another library (`theirs`) and in this package (`ours`).

    Args:
        theirs: One letter for each axis of their tensor; `1` for an axis of length 1.
        ours: The same letters in our order; letters in parentheses are merged into one axis.
    """

    theirs: str
    ours: tuple[str, ...]

    @staticmethod
    @functools.cache
    def parse(text: str) -> Layout:
        """Parses text such as `"DCPQ -> (PQC)D"`, or `"D"` if both layouts are the same."""
        theirs, _, ours = text.partition(" -> ")
        groups = re.findall(r"\(([^)]*)\)|(.)", ours or theirs)
        return Layout(theirs, tuple(merged or letter for merged, letter in groups))

    def fits(self, shape: tuple[int, ...], sizes: Sizes) -> bool:
        """Returns whether the shape is possible for a tensor in the other library's layout."""
        return len(shape) == len(self.theirs) and all(
            letter in _LOCAL or length == _length(letter, sizes)
            for letter, length in zip(self.theirs, shape, strict=True)
        )

    def read(self, tensor: np.ndarray, sizes: Sizes) -> np.ndarray:
        """Converts a tensor from the other library's layout to ours; a view if possible."""
        theirs = [letter for letter in self.theirs if letter != "1"]
        ours = [letter for axis in self.ours for letter in axis if letter != "1"]
        sizes = _with_local(sizes, self.theirs, tensor.shape)
        tensor = tensor.reshape([_length(letter, sizes) for letter in theirs])
        tensor = tensor.transpose([theirs.index(letter) for letter in ours])
        return tensor.reshape([_length(axis, sizes) for axis in self.ours])

    def write(self, tensor: np.ndarray, sizes: Sizes) -> np.ndarray:
        """Converts a tensor from our layout to the other library's; the inverse of `read`."""
        ours = "".join(self.ours)
        if len(ours) == tensor.ndim:
            sizes = _with_local(sizes, ours, tensor.shape)
        return Layout(ours, tuple(self.theirs)).read(
            tensor.reshape([_length(letter, sizes) for letter in ours]), sizes
        )


def sides(axes: Iterable[str], shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Yields each axis letter and its size, given a shape in this layout; skips merged axes."""
    for axis, side in zip(axes, shape, strict=False):
        if len(axis) == 1 and axis not in _LOCAL and axis != "1":
            base, times = _MULTIPLES.get(axis, (axis, 1))
            yield base, side // times


def _length(axis: str, sizes: Sizes) -> int:
    parts = (_MULTIPLES.get(letter, (letter, 1)) for letter in axis if letter != "1")
    return math.prod(sizes[base] * times for base, times in parts)


def _with_local(sizes: Sizes, letters: str, shape: tuple[int, ...]) -> Sizes:
    """Returns `sizes`, plus the sizes of axis letters that vary between tensors."""
    sides = zip(letters, shape, strict=True)
    return dict(sizes) | {letter: side for letter, side in sides if letter in _LOCAL}
