"""Datasets of images and masks, from two folders with files of the same names."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

import numpy as np

from keras_vit.arguments import naming_place, shortlist
from keras_vit.constants import IMAGE_FOLDERS, MASK_FOLDERS
from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.masks import MAX_CLASSES, Masks, stored_values
from keras_vit.storage.find_files import find_files
from keras_vit.storage.paths import AnyPath, as_array_value, fields_of_files, to_path

_SUFFIX = re.compile(r"_(mask|labels?|l|seg|segmentation|labelids|gtfine_labelids)$", re.I)
_PHOTO_SUFFIX = re.compile(r"_leftimg8bit$", re.I)
_YEAR = re.compile(r"[_-]?\d{4}$")  # of a split, such as train2017
# Folders of images and of masks, and endings of the names of their files.
_KINDS = ((IMAGE_FOLDERS, _PHOTO_SUFFIX), (MASK_FOLDERS, _SUFFIX))
_VOID = re.compile(r"void|unlabell?ed|ignored?|ignore[ _]region", re.IGNORECASE)
_MIN_READ = 20  # masks that are read to recognize 0 and 255

#: Name of each class and its value in masks, a gray level, an index of a palette or a color.
Classes = list[tuple[str, int | tuple[int, int, int]]]
#: Name of each file by its `partner_key`.
Keys = dict[tuple[str, str], str]


def has_masks(folder: AnyPath) -> bool:
    """Returns whether a folder has images and masks of the same names, one mask for most images."""
    images, masks = _files(find_files(folder).images)
    return bool(images) and 2 * len(images.keys() & masks.keys()) > len(images)


def without_masks(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the files without those in folders of masks, if any image has a mask of its name."""
    folders = {part for name in names for part in name.lower().split("/")[:-1]}
    if not folders & {*MASK_FOLDERS}:
        return tuple(names)
    images, masks = _files(names)
    omitted = set(masks.values() if images.keys() & masks.keys() else ())
    return tuple(name for name in names if name not in omitted)


def load_masks(folder: AnyPath) -> Examples:
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
    folder = to_path(folder)
    images, masks = _files(find_files(folder).images)
    if not images or not masks:
        raise ValueError(
            "`data` must be a folder with images and masks in two folders for the task "
            f"segmentation: {' or '.join(IMAGE_FOLDERS)}, and {' or '.join(MASK_FOLDERS)}. "
            f"Received: data={str(folder)!r} with {len(images)} images and {len(masks)} masks in "
            "such folders"
        )
    check_partners(images, masks, "a mask")
    keys = sorted(images)
    targets = np.array([as_array_value(folder / masks[key]) for key in keys])
    class_names, kind = _read_classes(folder, targets)
    splits = tuple(split for split, _ in keys)
    return Examples(
        names=tuple(images[key] for key in keys),
        targets=targets,
        class_names=class_names,
        source=str(folder),
        **fields_of_files(folder, [images[key] for key in keys]),
        splits=checked_splits([images[key] for key in keys], splits),
        target_kind=kind,
    )


def check_partners(images: Keys, others: Keys, what: str) -> None:
    """Raises `ValueError` unless each image has one of the other files, such as "a mask"."""
    other_noun = what.partition(" ")[2]
    for subject, counterpart, unmatched in (
        ("image", what, images.keys() - others.keys()),
        (other_noun, "an image", others.keys() - images.keys()),
    ):
        if unmatched:
            files = [(images | others)[key] for key in sorted(unmatched)]
            raise ValueError(
                f"Every {subject} must have {counterpart} of the same name: add it, or remove the "
                f"other. Received: none for {len(files)} of {len(images | others)}: "
                f"{shortlist(files, shown=20)}"
            )


def checked_splits(names: Sequence[str], splits: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the splits, or None without any; raises `ValueError` if only some images have one."""
    without = [name for name, split in zip(names, splits, strict=True) if not split]
    if without and any(splits):
        raise ValueError(
            "Every image must be in a split, such as the folder train, or none: move or remove the "
            f"others. Received: {len(without)} of {len(names)} images without a split: "
            f"{shortlist(without, shown=20)}"
        )
    return None if without else tuple(splits)


def add_file(files: Keys, key: tuple[str, str], name: str) -> None:
    """Adds a file with its `partner_key`; the second file of a key has no partner."""
    files[(key[0], name) if key in files else key] = name


def partner_key(parts: Sequence[str], without: Collection[str] = ()) -> tuple[str, str]:
    """Returns the split of a file, and its path without suffix, splits and some folders."""
    *parents, file = parts
    names = [part.lower() for part in parents]
    plain = (_YEAR.sub("", part) for part in names)
    split = next((SPLIT_NAMES[part] for part in plain if part in SPLIT_NAMES), "")
    other_folders = [part for part in names if part not in SPLIT_NAMES and part not in without]
    return split, "/".join([*other_folders, PurePosixPath(file).stem])


def _files(all_names: Sequence[str]) -> tuple[Keys, Keys]:
    """Returns the images and the masks by `partner_key`, without the folder of all of them."""
    files_by_kind: tuple[Keys, Keys] = {}, {}
    for name in all_names:
        parts = PurePosixPath(name).parts
        lower_parts = [part.lower() for part in parts[:-1]]
        for (folder_names, _), files in zip(_KINDS, files_by_kind, strict=True):
            position = next((i for i, part in enumerate(lower_parts) if part in folder_names), None)
            if position is not None:
                add_file(files, partner_key(parts[:position] + parts[position + 1 :]), name)
                break
    paired = files_by_kind[0].keys() & files_by_kind[1].keys()
    for (_, ending), files in zip(_KINDS, files_by_kind, strict=True):
        for split, path in sorted(files.keys() - paired):
            name = files.pop((split, path))
            add_file(files, (split, ending.sub("", path)), name)
    return files_by_kind


def _read_classes(folder: AnyPath, masks: np.ndarray) -> tuple[tuple[str, ...], Masks]:
    """Returns the classes and their kind, from the file in the folder or above it."""
    candidates = [parent / name for parent in (folder, folder.parent) for name in _DESCRIPTIONS]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        mask = to_path(masks[0])
        with naming_place(
            "`data` must contain classes.txt, with the name of a class in each line, in the order "
            f"of the masks' values 0, 1, ... Received: {folder} without it; {mask.name}"
        ):
            first = np.unique(stored_values(mask)).tolist()
            raise ValueError(f"with the values {shortlist(list(map(str, first)), shown=20)}")
    with naming_place(
        "Lines must be `name`, `name,r,g,b` below a header of these words, or "
        "`name:red,green,blue::` in classes.txt, class_dict.csv and labelmap.txt. Received: "
        f"{path}"
    ):
        pairs = _DESCRIPTIONS[path.name](path.read_text(encoding="utf-8-sig").splitlines())
        if len({value for _, value in pairs}) < len(pairs):
            raise ValueError("two classes have the same color")
        colors = [value for _, value in pairs if isinstance(value, tuple)]
        if not all(len(color) == 3 and 0 <= min(color) <= max(color) <= 255 for color in colors):
            raise ValueError("a color must have three numbers from 0 to 255")
    names = [name for name, _ in pairs if not _VOID.fullmatch(name)]
    if not 2 <= len(names) <= MAX_CLASSES or len({name for name, _ in pairs}) < len(pairs):
        raise ValueError(
            f"{path.name} must name 2 to {MAX_CLASSES} different classes, in a line each. "
            f"Received: {path} with {[name for name, _ in pairs][:20]}"
        )
    if path.name == "classes.txt" and len(pairs) == 2 and {255} <= _values(masks) <= {0, 255}:
        pairs = [(pairs[0][0], 0), (pairs[1][0], 255)]
    values = [value for name, value in pairs if name in names]
    return tuple(names), Masks(values, [value for name, value in pairs if name not in names])


def _values(masks: np.ndarray) -> set[int]:
    """Returns the values of the first masks that can be read, up to one with an object."""
    values: set[int] = set()
    for number, mask in enumerate(masks):
        if number >= _MIN_READ and values - {0}:
            break
        with contextlib.suppress(ValueError):  # the audit reports the file
            values |= set(np.unique(stored_values(to_path(mask))).tolist())
    return values


def _listed(lines: Sequence[str]) -> Classes:
    names = [line.strip() for line in lines if line.strip()]
    return [(name, index) for index, name in enumerate(names)]


def _colored(lines: Sequence[str]) -> Classes:
    rows = csv.DictReader([lines[0].lower().replace(" ", ""), *lines[1:]])
    return [(row["name"].strip(), (int(row["r"]), int(row["g"]), int(row["b"]))) for row in rows]


def _labelmap(lines: Sequence[str]) -> Classes:
    """Reads CVAT's lines of `label:red,green,blue:parts:actions`."""
    rows = [line.split(":") for line in lines if line.strip() and not line.startswith("#")]
    return [(row[0].strip(), tuple(map(int, row[1].split(",")))) for row in rows]  # type: ignore[misc]


_DESCRIPTIONS = {"class_dict.csv": _colored, "labelmap.txt": _labelmap, "classes.txt": _listed}
