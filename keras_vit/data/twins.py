"""Different files of the same photograph, found by their names and contents."""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

_SIDE = 64  # pixels; contents of smaller images are not compared
#: Rows and columns of a thumbnail.
GRID = 48
_SAMPLES = 4  # pixels per cell and side
_CONTRAST = 1.0  # gray levels of 256; smaller details, without the margins, are noise
_COARSE, _FINE = 8, 24  # rows and columns of the thumbnails that are compared
#: Lowest correlation of the details of two near-duplicates.
SIMILARITY = 0.9
# Lowest similarity of coarse thumbnails, and of fine ones before their alignment.
_CANDIDATE, _UNALIGNED = 0.88, 0.55
_CANDIDATES = 8  # images compared with each image, at most
#: Largest number of images whose contents are compared.
MOST = 50_000
_BLOCK = 256  # images compared with all others at a time
_STEPS = 7  # number of crops before and after a row or column: 0, 1/80, ..., 6/80 of the side
_EIGHTIETH = GRID / 80
# Crops in eightieths of the side, (before, after) of rows and of columns: none, all sides, corners.
_CROPS = (
    *(((n, n), (n, n)) for n in (0, 2, 4)),
    *itertools.product(((0, 4), (4, 0)), repeat=2),
)
_EDITED = re.compile(r"([ _.-](edited|bearbeitet|cover|copy|kopie)|~\d+|[ _.-]burst[ _-]?\d+.*)+$")
_COPY = re.compile(r" ?\((\d+)\)$")


def content_hash(image: np.ndarray) -> np.ndarray | None:
    """Returns a gray thumbnail, uint8 of shape (48, 48).

    Returns None for images of less than 64 pixels, or with little contrast.

    Args:
        image: Pixels, uint8 of shape (height, width, 3).
    """
    if min(image.shape[:2]) < _SIDE:
        return None
    rows, columns = (
        np.linspace(0, side - 1, GRID * _SAMPLES).astype(int) for side in image.shape[:2]
    )
    gray = image[np.ix_(rows, columns)].mean(axis=2, dtype="float32")
    small = gray.reshape(GRID, _SAMPLES, GRID, _SAMPLES).mean(axis=(1, 3))
    fine = _details(_ROWS[0] @ small @ _ROWS[0].T).reshape(_FINE, _FINE)[4:-4, 4:-4]
    return small.round().astype("uint8") if np.abs(fine).mean() >= _CONTRAST else None


def find_twins(hashes: Mapping[str, np.ndarray | None]) -> tuple[tuple[str, ...], ...]:
    """Returns groups of names of the same photograph, each sorted.

    Args:
        hashes: Name of each image -> its `content_hash`.
    """
    pairs = [*_same_names(sorted(hashes)), *_near(hashes)]
    groups = DisjointSet(sorted({name for pair in pairs for name in pair}))
    for pair in pairs:
        groups.merge(*pair)
    return tuple(tuple(sorted(group)) for group in groups.subsets())


def _same_names(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields pairs of files that phones and editors name after one photograph."""
    groups: dict[str, list[str]] = defaultdict(list)
    copies: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem = re.sub(r"\.[^./]*$", "", name.casefold())
        stem = _EDITED.sub("", re.sub(r"(^|/)img_e(?=\d{4}$)", r"\1img_", stem))
        if burst := re.search(r"^(.*/)?[^/]*burst(\d{8,})", name.casefold()):
            stem = f"{burst[1]}burst{burst[2]}"
        stem, is_copy = _COPY.subn("", stem)
        (copies if is_copy else groups)[stem].append(name)
    for stem, found in copies.items():
        if len(found) == 1:  # download (1), download (2), ... are different images
            groups[stem] += found
    for group in groups.values():
        yield from ((group[0], name) for name in group[1:])


def _crop(cells: int, before: int, after: int) -> np.ndarray:
    """Returns the averages of a cropped row of a thumbnail, as a matrix (cells, 48)."""
    edges = np.linspace(before * _EIGHTIETH, GRID - after * _EIGHTIETH, cells + 1)[:, None]
    place = np.arange(GRID)
    covered = np.minimum(edges[1:], place + 1) - np.maximum(edges[:-1], place)
    covered = np.maximum(covered, 0)
    return (covered / covered.sum(axis=1, keepdims=True)).astype("float32")


# Crops of rows or columns, (49, 24, 48): that of `before` and `after` has index 7 before + after.
_ROWS = np.stack([_crop(_FINE, *n) for n in itertools.product(range(_STEPS), repeat=2)])
_STARTS = np.array([[_STEPS * before + after for before, after in crop] for crop in _CROPS])


def _details(small: np.ndarray) -> np.ndarray:
    """Returns thumbnails (..., side, side) minus their Gaussian blur, flat: (..., side^2)."""
    cells = np.arange(small.shape[-1])
    sigma = 1.5 if len(cells) == _COARSE else 2.0
    blur = np.exp(-(((cells[:, None] - cells) / sigma) ** 2) / 2)
    blur = (blur / blur.sum(axis=1, keepdims=True)).astype("float32")
    return (small - blur @ small @ blur.T).reshape(*small.shape[:-2], len(cells) ** 2)


def _unit(details: np.ndarray) -> np.ndarray:
    return details / (np.linalg.norm(details, axis=-1, keepdims=True) + 1e-6)


def _coarse(images: np.ndarray, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
    small = _crop(_COARSE, *rows) @ images.astype("float32") @ _crop(_COARSE, *columns).T
    return _unit(_details(small))


def _near(hashes: Mapping[str, np.ndarray | None]) -> Iterable[tuple[str, str]]:
    """Yields pairs of images of which one is similar to a crop of the other, mirrored or not."""
    found = {name: thumbnail for name, thumbnail in hashes.items() if thumbnail is not None}
    names, number = list(found), min(len(found) - 1, _CANDIDATES)
    if not 1 < len(names) <= MOST:
        return
    images = np.stack([*found.values()])
    starts = range(0, len(images), _BLOCK)
    whole = np.concatenate([_coarse(images[i : i + _BLOCK], *_CROPS[0]) for i in starts])
    for start in starts:
        block = images[start : start + _BLOCK]
        views = np.stack((block, block[:, :, ::-1]))
        parts = np.stack([_coarse(view, *crop) for view in views for crop in _CROPS])
        best = functools.reduce(np.maximum, (part @ whole.T for part in parts))
        best[range(len(block)), range(start, start + len(block))] = -1
        columns = np.argpartition(best, -number)[:, -number:]
        rows, place = np.nonzero(np.take_along_axis(best, columns, axis=1) >= _CANDIDATE)
        others = columns[rows, place]
        part = np.einsum("kpd,pd->kp", parts[:, rows], whole[others]).argmax(axis=0)
        mirrored, crop = np.divmod(part, len(_CROPS))
        alike = _are_alike(views[mirrored, rows], images[others], crop)
        for row, other in zip(rows[alike].tolist(), others[alike].tolist(), strict=True):
            yield names[start + row], names[other]


def _are_alike(images: np.ndarray, others: np.ndarray, crop: np.ndarray) -> np.ndarray:
    """Returns whether each image, cropped, is similar to the other; the search starts at `crop`."""

    def similarity(small: np.ndarray) -> np.ndarray:
        return np.vecdot(_unit(_details(small)), target)

    images, others = images.astype("float32"), others.astype("float32")
    rows, columns = _STARTS[crop].T
    target = _unit(_details(_ROWS[0] @ others @ _ROWS[0].T))
    first = similarity(_ROWS[rows] @ images @ _ROWS[columns].swapaxes(1, 2))
    alike = first >= SIMILARITY
    unclear = np.flatnonzero((first >= _UNALIGNED) & ~alike)
    images, target, columns = images[unclear], target[unclear], columns[unclear]
    for _ in range(2):
        part = images @ _ROWS[columns].swapaxes(1, 2)
        rows = np.argmax([similarity(matrix @ part) for matrix in _ROWS], axis=0)
        part = _ROWS[rows] @ images
        found = np.array([similarity(part @ matrix.T) for matrix in _ROWS])
        columns = found.argmax(axis=0)
    alike[unclear] = found.max(axis=0) >= SIMILARITY
    return alike
