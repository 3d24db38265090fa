from __future__ import annotations

import math
import re

import numpy as np
import pytest

from keras_vit.weights.dialects import DIALECTS
from keras_vit.weights.dialects.axes import Layout, sides

# D = K d; lower-case a, b, i and o are of this tensor alone.
SIZES = {"D": 30, "K": 5, "d": 6, "M": 31, "W": 62, "P": 3, "Q": 2, "C": 4, "T": 13, "N": 12}
SIZES |= {"G": 7, "R": 17, "F": 19, "Y": 23}
LENGTHS = SIZES | {"E": 30, "V": 60, "U": 90, "a": 8, "b": 9, "i": 14, "o": 16, "1": 1}
LAYOUTS = sorted({row.axes for dialect in DIALECTS.values() for row in dialect.rows})


def random_tensor(layout: Layout) -> np.ndarray:
    return np.random.default_rng(3).normal(size=[LENGTHS[letter] for letter in layout.theirs])


def by_einsum(axes: str, tensor: np.ndarray) -> np.ndarray:
    """Our tensor by another way: axes of length 1 come last of all, from the shape."""
    theirs, _, ours = axes.partition(" -> ")
    letters = re.sub("[^A-Za-z]", "", ours or theirs)
    moved = np.einsum(
        f"{theirs.replace('1', '')}->{letters}",
        tensor.reshape([LENGTHS[letter] for letter in theirs if letter != "1"]),
    )
    groups = re.findall(r"\(\w+\)|\w", ours or theirs)
    return moved.reshape([math.prod(LENGTHS[x] for x in group.strip("()")) for group in groups])


@pytest.mark.parametrize("axes", LAYOUTS)
def test_read_of_every_layout_in_use(axes: str) -> None:
    layout = Layout.parse(axes)
    theirs = random_tensor(layout)
    ours = layout.read(theirs, SIZES)
    np.testing.assert_array_equal(ours, by_einsum(axes, theirs))
    np.testing.assert_array_equal(layout.write(ours, SIZES), theirs)


def test_there_are_layouts_of_every_kind() -> None:
    assert {"D", "11D", "1TD -> TD", "DKd -> D(Kd)", "DCPQ -> (PQC)D", "oiab -> abio"} <= set(
        LAYOUTS
    )
    assert set("".join(LAYOUTS)) - set(" ->()") == set(LENGTHS)


def test_read_puts_row_column_and_channel_of_a_patch_side_by_side() -> None:
    theirs = random_tensor(Layout.parse("DCPQ"))
    ours = Layout.parse("DCPQ -> (PQC)D").read(theirs, SIZES)
    assert ours.shape == (24, 30)
    assert ours[(2 * 2 + 1) * 4 + 3, 29] == theirs[29, 3, 2, 1]


def test_read_puts_the_channels_of_a_head_side_by_side() -> None:
    theirs = random_tensor(Layout.parse("DKd"))
    ours = Layout.parse("DKd -> D(Kd)").read(theirs, SIZES)
    assert ours.shape == (30, 30)
    assert ours[7, 3 * 6 + 2] == theirs[7, 3, 2]


@pytest.mark.parametrize("axes", LAYOUTS)
def test_fits_its_own_sizes_alone(axes: str) -> None:
    layout = Layout.parse(axes)
    shape = tuple(LENGTHS[letter] for letter in layout.theirs)
    assert layout.fits(shape, SIZES)
    for axis, letter in enumerate(layout.theirs):
        longer = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        assert layout.fits(longer, SIZES) == (letter in "abio"), letter
    assert not layout.fits(shape[1:], SIZES)
    assert not layout.fits((*shape, 1), SIZES)


@pytest.mark.parametrize(
    ("axes", "shape", "sizes"),
    [
        ("UD -> DU", (72, 24), [("D", 24), ("D", 24)]),
        ("VD", (49, 24), [("D", 24), ("D", 24)]),  # 49 is no multiple, and does not fit
        ("ED", (24, 25), [("D", 24), ("D", 25)]),
        ("1TD -> TD", (1, 26, 24), [("T", 26), ("D", 24)]),
        ("oiab -> abio", (16, 14, 8, 9), []),
        ("DCPQ -> (PQC)D", (24, 4, 3), [("D", 24), ("C", 4), ("P", 3)]),
    ],
)
def test_sides_are_what_a_shape_speaks_for(
    axes: str, shape: tuple[int, ...], sizes: list[tuple[str, int]]
) -> None:
    assert list(sides(Layout.parse(axes).theirs, shape)) == sizes


@pytest.mark.parametrize(
    ("axes", "shape", "sizes"),
    [
        ("DCPQ -> (PQC)D", (72, 24), [("D", 24)]),
        ("UD -> DU", (24, 72), [("D", 24), ("D", 24)]),
        ("DKd -> D(Kd)", (24, 24), [("D", 24)]),
        ("1GD", (1, 7, 24), [("G", 7), ("D", 24)]),
    ],
)
def test_our_sides_pass_over_shared_axes(
    axes: str, shape: tuple[int, ...], sizes: list[tuple[str, int]]
) -> None:
    assert list(sides(Layout.parse(axes).ours, shape)) == sizes


def test_read_copies_nothing_where_the_layout_is_the_same() -> None:
    tensor = random_tensor(Layout.parse("MD"))
    assert Layout.parse("MD -> DM").read(tensor, SIZES).base is not None
    assert np.shares_memory(Layout.parse("MD -> DM").read(tensor, SIZES), tensor)
