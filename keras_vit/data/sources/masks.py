"""Datasets of images and masks, from two folders with files of the same names."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from keras_vit.arguments import shortlist
from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.inventory import find_files
from keras_vit.data.masks import MAX_CLASSES, Masks, stored_values

IMAGE_FOLDERS = ("images", "image", "imgs", "jpegimages")
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "segmentationclass")
_SUFFIX = re.compile(r"_(mask|labels?|l|seg|segmentation|labelids|gtfine_labelids)$", re.I)
_PHOTO_SUFFIX = re.compile(r"_leftimg8bit$", re.I)
_VOID = re.compile(r"void|unlabell?ed|ignored?|ignore[ _]region", re.IGNORECASE)
_SEEN = 20  # masks that are read to recognize 0 and 255


class _Classes(NamedTuple):
    """Names of the classes, their values in masks, and the values of pixels without a class."""

    names: tuple[str, ...]
    values: Sequence[int | tuple[int, int, int]]
    ignored: Sequence[int | tuple[int, int, int]]


def has_masks(folder: str | os.PathLike[str]) -> bool:
    """Returns whether a folder has images and masks of the same names, one mask for most images."""
    images, masks = _files(Path(folder))
    return bool(images) and 2 * len(images.keys() & masks.keys()) > len(images)


def load_masks(folder: str | os.PathLike[str]) -> Examples:
    """Loads a dataset of images and masks, without decoding the images.

    The folder contains `images/` and `masks/` (or `labels/`, `annotations/`), with files of the
    same names, such as `images/a.jpg` and `masks/a.png`; both may contain folders. Folders of
    splits (`train`, `validation`, `test`) may lie above or below them. The names of the classes are
    the lines of `classes.txt`, in the order of the masks' values 0, 1, ...; masks in colors need
    `class_dict.csv` with the columns name, r, g and b, or CVAT's `labelmap.txt`. Pixels with the
    value 255, or of a class named `void`, `unlabelled` or `ignore`, count neither in training nor
    in scores.

    Raises:
        ValueError: If an image has no mask or a mask no image, or the classes are not described.
    """
    folder = Path(folder).expanduser()
    images, masks = _files(folder)
    if not images or not masks:
        raise ValueError(
            "`data` must be a folder with images and masks in two folders, such as images/ and "
            f"masks/, for the task segmentation. Received: data={str(folder)!r} with "
            f"{len(images)} images and {len(masks)} masks in such folders"
        )
    for what, alone in (
        ("Every image must have a mask of the same name", images.keys() - masks.keys()),
        ("Every mask must have an image of the same name", masks.keys() - images.keys()),
    ):
        if alone:
            files = [(images | masks)[key] for key in sorted(alone)]
            raise ValueError(f"{what}. Received: none for {shortlist(files, shown=20)}")
    keys = sorted(images)
    targets = np.array([str(folder / masks[key]) for key in keys])
    classes = _classes(folder, targets)
    splits = tuple(split for split, _ in keys)
    return Examples(
        names=tuple(images[key] for key in keys),
        targets=targets,
        class_names=classes.names,
        source=str(folder),
        paths=tuple(str(folder / images[key]) for key in keys),
        splits=splits if all(splits) else None,
        target_kind=Masks(classes.values, classes.ignored),
    )


def _files(folder: Path) -> tuple[dict, dict]:
    """Returns the images and the masks by (split, name without folders of splits and suffix)."""
    images: dict[tuple[str | None, str], str] = {}
    masks: dict[tuple[str | None, str], str] = {}
    for name in find_files(folder).images:
        *parents, file = PurePosixPath(name).parts
        lower = [part.lower() for part in parents]
        for known, found in ((IMAGE_FOLDERS, images), (MASK_FOLDERS, masks)):
            place = next((i for i, part in enumerate(lower) if part in known), None)
            if place is None:
                continue
            splits = [SPLIT_NAMES[part] for part in lower if part in SPLIT_NAMES]
            rest = [p for i, p in enumerate(lower) if i != place and p not in SPLIT_NAMES]
            stem = (_PHOTO_SUFFIX if found is images else _SUFFIX).sub("", Path(file).stem)
            found[(splits[0] if splits else None, "/".join([*rest, stem]))] = name
            break
    return images, masks


def _classes(folder: Path, masks: np.ndarray) -> _Classes:
    """Reads the classes from the file that describes them, in the folder or above it."""
    for place in (folder, folder.parent):
        for name, read in _DESCRIPTIONS.items():
            if (path := place / name).is_file():
                return _without_void(read(path, masks), path)
    first = stored_values(Path(masks[0]))
    raise ValueError(
        "`data` must contain classes.txt, with the name of a class in each line, in the order of "
        f"the masks' values 0, 1, ... Received: {folder} without it; {Path(masks[0]).name} has the "
        f"values {shortlist(list(map(str, np.unique(first))), shown=20)}"
    )


def _listed(path: Path, masks: np.ndarray) -> _Classes:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    names = tuple(line.strip() for line in lines if line.strip())
    values = list(range(len(names)))
    if len(names) == 2:
        found: set[int] = set()
        for mask in masks[:_SEEN]:
            with contextlib.suppress(ValueError):  # the audit names the file
                found |= set(np.unique(stored_values(Path(mask))).tolist())
        if found <= {0, 255}:
            values = [0, 255]
    return _Classes(names, values, ())


def _colored(path: Path, masks: np.ndarray) -> _Classes:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [{k.strip().lower(): v for k, v in row.items() if k} for row in csv.DictReader(file)]
    try:
        values = [tuple(int(row[channel]) for channel in "rgb") for row in rows]
        names = tuple(row["name"].strip() for row in rows)
    except (KeyError, ValueError) as error:
        raise ValueError(
            "`class_dict.csv` must have the columns name, r, g and b, with numbers from 0 to 255. "
            f"Received: {path} ({error})"
        ) from error
    return _Classes(names, values, ())  # type: ignore[arg-type]


def _labelmap(path: Path, masks: np.ndarray) -> _Classes:
    """Reads CVAT's table of `label:red,green,blue:parts:actions`."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows = [line.split(":") for line in lines if line.strip() and not line.startswith("#")]
    try:
        values = [tuple(map(int, row[1].split(","))) for row in rows]
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"Lines of labelmap.txt must be name:red,green,blue::. Received: {path} ({error})"
        ) from error
    return _Classes(tuple(row[0].strip() for row in rows), values, ())  # type: ignore[arg-type]


_DESCRIPTIONS = {"class_dict.csv": _colored, "labelmap.txt": _labelmap, "classes.txt": _listed}


def _without_void(classes: _Classes, path: Path) -> _Classes:
    pairs = list(zip(classes.names, classes.values, strict=True))
    kept = [pair for pair in pairs if not _VOID.fullmatch(pair[0])]
    if not 2 <= len(kept) <= MAX_CLASSES or len({name for name, _ in pairs}) < len(pairs):
        raise ValueError(
            f"{path.name} must name 2 to {MAX_CLASSES} different classes. Received: {path} with "
            f"{shortlist([name for name, _ in pairs], shown=20)}"
        )
    ignored = [value for name, value in pairs if _VOID.fullmatch(name)]
    return _Classes(tuple(n for n, _ in kept), [value for _, value in kept], ignored)
