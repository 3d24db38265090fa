"""Near-duplicates: files of the same photograph, found by their names and contents."""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from keras_vit.image_formats import has_image_suffix

_MIN_SIDE = 64  # pixels; contents of smaller images are not compared
#: Number of rows and of columns of a thumbnail.
THUMBNAIL_SIDE = 48
_SAMPLES = 4  # pixels per cell and side
_MIN_CONTRAST = 1.0  # gray levels of 256; smaller details, without the margins, are noise
_COARSE_SIDE, _FINE_SIDE = 8, 24  # rows and columns of thumbnails that are compared
#: Lowest correlation of the details of two near-duplicates.
MIN_SIMILARITY = 0.9
# Lowest similarity of coarse thumbnails, and of fine thumbnails before their alignment.
_MIN_COARSE, _MIN_UNALIGNED = 0.88, 0.55
_MAX_CANDIDATES = 8  # images compared with each image, at most
#: Largest number of images whose contents are compared.
MAX_COMPARED = 50_000
_BLOCK_SIZE = 256  # images compared with all others at a time
_CROP_SIZES = 7  # sizes of a crop on one side of an image: 0, 1/80, ..., 6/80 of the side
_EIGHTIETH = THUMBNAIL_SIDE / 80
# Crops in eightieths of the side, (before, after) of rows and of columns: none, all sides, corners.
_CROPS = (*(((n, n), (n, n)) for n in (0, 2, 4)), *itertools.product(((0, 4), (4, 0)), repeat=2))
_EDITED = re.compile(r"([ _.-](edited|bearbeitet|cover|copy|kopie)|~\d+|[ _.-]burst[ _-]?\d+.*)+$")
_COPY = re.compile(r" ?\((\d+)\)$")


def content_hash(image: np.ndarray) -> np.ndarray | None:
    """Returns a gray thumbnail, uint8 (48, 48), of pixels (height, width, 3), uint8.

    Returns None for an image with a side of less than 64 pixels or with little contrast.
    """
    if min(image.shape[:2]) < _MIN_SIDE:
        return None
    rows, columns = (
        np.linspace(0, side - 1, THUMBNAIL_SIDE * _SAMPLES).astype(int) for side in image.shape[:2]
    )
    gray = image[np.ix_(rows, columns)].mean(axis=2, dtype="float32")
    thumbnail = gray.reshape(THUMBNAIL_SIDE, _SAMPLES, THUMBNAIL_SIDE, _SAMPLES).mean(axis=(1, 3))
    details = _details(_CROP_MATRICES[0] @ thumbnail @ _CROP_MATRICES[0].T)
    inner = details.reshape(_FINE_SIDE, _FINE_SIDE)[4:-4, 4:-4]  # without the margins
    return thumbnail.round().astype("uint8") if np.abs(inner).mean() >= _MIN_CONTRAST else None


def find_near_duplicates(hashes: Mapping[str, np.ndarray | None]) -> tuple[tuple[str, ...], ...]:
    """Returns groups of names of near-duplicates, each sorted, from the `content_hash` by name."""
    pairs = [*_pairs_by_name(sorted(hashes)), *_pairs_by_content(hashes)]
    groups = DisjointSet(sorted({name for pair in pairs for name in pair}))
    for pair in pairs:
        groups.merge(*pair)
    return tuple(tuple(sorted(group)) for group in groups.subsets())


def _pairs_by_name(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields pairs of files whose names phones and editors derive from one photograph."""
    groups: dict[str, list[str]] = defaultdict(list)
    copies: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem = name.casefold()
        while has_image_suffix(stem):  # `data convert` may write a.heic.jpg beside a.jpg
            stem = stem.rpartition(".")[0]
        stem = _EDITED.sub("", re.sub(r"(^|/)img_e(?=\d{4}$)", r"\1img_", stem))
        if burst := re.search(r"^(.*/)?[^/]*burst(\d{8,})", name.casefold()):
            stem = f"{burst[1]}burst{burst[2]}"
        stem, is_copy = _COPY.subn("", stem)
        (copies if is_copy else groups)[stem].append(name)
    for stem, copy_names in copies.items():
        if len(copy_names) == 1:  # download (1), download (2), ... are different images
            groups[stem] += copy_names
    for group in groups.values():
        yield from ((group[0], name) for name in group[1:])


def _crop_matrix(cells: int, before: int, after: int) -> np.ndarray:
    """Returns the matrix (cells, 48) that averages a cropped row of a thumbnail."""
    edges = np.linspace(before * _EIGHTIETH, THUMBNAIL_SIDE - after * _EIGHTIETH, cells + 1)
    edges = edges[:, None]
    starts = np.arange(THUMBNAIL_SIDE)
    overlap = np.minimum(edges[1:], starts + 1) - np.maximum(edges[:-1], starts)
    overlap = np.maximum(overlap, 0)
    return (overlap / overlap.sum(axis=1, keepdims=True)).astype("float32")


# Matrices (49, 24, 48) of all crops; the crop (before, after) has the index 7 * before + after.
_CROP_MATRICES = np.stack(
    [_crop_matrix(_FINE_SIDE, *n) for n in itertools.product(range(_CROP_SIZES), repeat=2)]
)
_CROP_INDICES = np.array(
    [[_CROP_SIZES * before + after for before, after in crop] for crop in _CROPS]
)


def _details(thumbnails: np.ndarray) -> np.ndarray:
    """Returns thumbnails (..., side, side) minus their Gaussian blur, flat: (..., side^2)."""
    cells = np.arange(thumbnails.shape[-1])
    sigma = 1.5 if len(cells) == _COARSE_SIDE else 2.0
    blur = np.exp(-(((cells[:, None] - cells) / sigma) ** 2) / 2)
    blur = (blur / blur.sum(axis=1, keepdims=True)).astype("float32")
    details = thumbnails - blur @ thumbnails @ blur.T
    return details.reshape(*thumbnails.shape[:-2], len(cells) ** 2)


def _normalized(details: np.ndarray) -> np.ndarray:
    return details / (np.linalg.norm(details, axis=-1, keepdims=True) + 1e-6)


def _coarse_details(
    images: np.ndarray, rows: tuple[int, int], columns: tuple[int, int]
) -> np.ndarray:
    row_matrix, column_matrix = (_crop_matrix(_COARSE_SIDE, *crop) for crop in (rows, columns))
    return _normalized(_details(row_matrix @ images.astype("float32") @ column_matrix.T))


def _pairs_by_content(hashes: Mapping[str, np.ndarray | None]) -> Iterable[tuple[str, str]]:
    """Yields pairs in which an image is similar to a crop of the other or of its mirror image."""
    thumbnails = {name: image for name, image in hashes.items() if image is not None}
    names, num_candidates = list(thumbnails), min(len(thumbnails) - 1, _MAX_CANDIDATES)
    if not 1 < len(names) <= MAX_COMPARED:
        return
    images = np.stack([*thumbnails.values()])
    starts = range(0, len(images), _BLOCK_SIZE)
    blocks = (images[start : start + _BLOCK_SIZE] for start in starts)
    uncropped = np.concatenate([_coarse_details(block, *_CROPS[0]) for block in blocks])
    for start in starts:
        block = images[start : start + _BLOCK_SIZE]
        views = np.stack((block, block[:, :, ::-1]))
        crops = np.stack([_coarse_details(view, *crop) for view in views for crop in _CROPS])
        similarity = functools.reduce(np.maximum, (crop @ uncropped.T for crop in crops))
        similarity[range(len(block)), range(start, start + len(block))] = -1  # with itself
        candidates = np.argpartition(similarity, -num_candidates)[:, -num_candidates:]
        is_candidate = np.take_along_axis(similarity, candidates, axis=1) >= _MIN_COARSE
        rows, columns = np.nonzero(is_candidate)
        others = candidates[rows, columns]
        best = np.einsum("kpd,pd->kp", crops[:, rows], uncropped[others]).argmax(axis=0)
        mirrored, crop = np.divmod(best, len(_CROPS))
        similar = _are_similar(views[mirrored, rows], images[others], crop)
        for row, other in zip(rows[similar].tolist(), others[similar].tolist(), strict=True):
            yield names[start + row], names[other]


def _are_similar(images: np.ndarray, others: np.ndarray, crop: np.ndarray) -> np.ndarray:
    """Returns whether some crop of each image is similar to the other; starts with `crop`."""

    def similarity(thumbnails: np.ndarray) -> np.ndarray:
        return np.vecdot(_normalized(_details(thumbnails)), target)

    images, others = images.astype("float32"), others.astype("float32")
    rows, columns = _CROP_INDICES[crop].T
    target = _normalized(_details(_CROP_MATRICES[0] @ others @ _CROP_MATRICES[0].T))
    unaligned = similarity(_CROP_MATRICES[rows] @ images @ _CROP_MATRICES[columns].swapaxes(1, 2))
    similar = unaligned >= MIN_SIMILARITY
    unclear = np.flatnonzero((unaligned >= _MIN_UNALIGNED) & ~similar)
    images, target, columns = images[unclear], target[unclear], columns[unclear]
    for _ in range(2):
        cropped = images @ _CROP_MATRICES[columns].swapaxes(1, 2)
        rows = np.argmax([similarity(matrix @ cropped) for matrix in _CROP_MATRICES], axis=0)
        cropped = _CROP_MATRICES[rows] @ images
        aligned = np.array([similarity(cropped @ matrix.T) for matrix in _CROP_MATRICES])
        columns = aligned.argmax(axis=0)
    similar[unclear] = aligned.max(axis=0) >= MIN_SIMILARITY
    return similar
