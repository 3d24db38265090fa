"""Different files of the same photograph, found by their names and contents."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

_GRID = 16  # rows and columns of the hash
_SAMPLES = 8  # pixels per cell and side
_SIDE = 64  # pixels; contents of smaller images are not compared
_STEP = 1.0  # gray levels of 256; smaller differences are noise
#: Largest number of different bits of two near-duplicates, of 256.
DISTANCE = 16
#: Largest number of images whose contents are compared.
MOST = 50_000
_EDITED = re.compile(r"([ _.-](edited|bearbeitet|cover|copy|kopie)|~\d+|[ _.-]burst[ _-]?\d+.*)+$")
_COPY = re.compile(r" ?\((\d+)\)$")


def content_hash(image: np.ndarray) -> np.ndarray | None:
    """Returns the signs of the horizontal differences of a small gray image, 256 bits.

    Returns None for images of less than 64 pixels, or with little contrast.

    Args:
        image: Pixels, uint8 of shape (height, width, 3).

    Reference: "dHash", https://www.hackerfactor.com/blog/index.php?/archives/529-Kind-of-Like-That.html
    """
    if min(image.shape[:2]) < _SIDE:
        return None
    cells = (_GRID, _GRID + 1)
    rows, columns = (
        np.linspace(0, side - 1, number * _SAMPLES).astype(int)
        for side, number in zip(image.shape, cells, strict=False)
    )
    gray = image[np.ix_(rows, columns)].mean(axis=2)
    small = gray.reshape(cells[0], _SAMPLES, cells[1], _SAMPLES).mean(axis=(1, 3))
    steps = np.diff(small, axis=1).ravel()
    return steps > 0 if np.mean(np.abs(steps) > _STEP) > 0.25 else None


def find_twins(hashes: Mapping[str, np.ndarray | None]) -> tuple[tuple[str, ...], ...]:
    """Returns groups of names of the same photograph, each sorted.

    Args:
        hashes: Name of each image -> its `content_hash`.
    """
    names = sorted(hashes)
    position = {name: index for index, name in enumerate(names)}
    pairs = [(position[a], position[b]) for a, b in (*_same_names(names), *_near(hashes))]
    if not pairs:
        return ()
    links = sparse.coo_array((np.ones(len(pairs)), np.transpose(pairs)), (len(names), len(names)))
    groups: dict[int, list[str]] = defaultdict(list)
    for name, group in zip(names, csgraph.connected_components(links)[1], strict=True):
        groups[group].append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _same_names(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields pairs of files that phones and editors name after one photograph."""
    groups: dict[str, list[str]] = defaultdict(list)
    copies: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem = re.sub(r"\.[^./]*$", "", name.casefold())
        stem = _EDITED.sub("", re.sub(r"(^|/)img_e(?=\d{4}$)", r"\1img_", stem))
        if burst := re.search(r"^(.*/)?[^/]*burst(\d{8,})", name.casefold()):
            stem = f"{burst[1]}burst{burst[2]}"
        if _COPY.search(stem):
            copies[_COPY.sub("", stem)].append(name)
        else:
            groups[stem].append(name)
    for stem, found in copies.items():
        if len(found) == 1:  # download (1), download (2), ... are different images
            groups[stem] += found
    for group in groups.values():
        yield from ((group[0], name) for name in group[1:])


def _near(hashes: Mapping[str, np.ndarray | None]) -> Iterable[tuple[str, str]]:
    """Yields pairs of images whose hashes differ by at most `DISTANCE` bits."""
    names = [name for name, bits in hashes.items() if bits is not None]
    if not 1 < len(names) <= MOST:
        return
    signs = np.array([hashes[name] for name in names], "float32") * 2 - 1
    for start in range(0, len(names), 256):
        products = signs[start : start + 256] @ signs[start:].T
        rows, columns = np.nonzero(products >= signs.shape[1] - 2 * DISTANCE)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if row < column:
                yield names[start + row], names[start + column]
