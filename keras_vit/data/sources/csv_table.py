"""Datasets described by a CSV or JSON Lines table of images and classes."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from pathlib import Path

import numpy as np

from keras_vit.data.examples import SPLIT_NAMES, SPLITS, Examples
from keras_vit.data.sources.csv_text import CLASS_COLUMNS, COLUMNS, SEPARATOR, Row, read_rows
from keras_vit.preprocessing import imagenet_labels, imagenet_wnids

_CLASS_COLUMNS = CLASS_COLUMNS[:-1]
_SEVERAL = CLASS_COLUMNS[-1]
_OUTSIDE = os.path.join(os.pardir, "")
_ADDRESS = re.compile(r"\w+://")


def load_table(path: str | os.PathLike[str]) -> Examples:
    """Loads a dataset from a table with a `file` column and at least one class column.

    `class_index` and `wnid` refer to the 1000 ImageNet classes, so that `class_names` are all
    ImageNet classes, in their order. If `class_index` comes with a `label` other than ImageNet's,
    the labels are the classes, in the order of the index. With `label` alone, its sorted values
    are the classes. `class_index` takes precedence over `wnid`, and `wnid` over `label`. Other
    columns, such as the camera, are kept: `keras-vit evaluate --report` reports the accuracy for
    each of their values.

    Without these columns, `labels` contains the names of all classes of an image, such as
    `daisy|rose`, and is empty for an image without any class; its sorted names are the classes.

    A column `split` with `train`, `validation` (or `val`, `valid`, `dev`) and `test` divides the
    images.

    The table may also have no header line, or be a `metadata.csv` or `metadata.jsonl` of Hugging
    Face, with `file_name` for `file`. `notes` list deviations: another encoding or separator,
    other column names, images outside of the folder.
    """
    path = Path(path)
    rows, notes = read_rows(path, lambda cell: bool(_ADDRESS.match(cell) or _find(path, cell)))
    header = list(next(iter(rows.values())))
    columns = [name for name in _CLASS_COLUMNS if name in header]
    if not columns and _SEVERAL in header:
        columns = [_SEVERAL]
    if "file" not in header or not columns:
        raise ValueError(
            "The table must have a header line (JSON Lines: keys) with the column `file` and one "
            f"of the columns {', '.join(CLASS_COLUMNS)}. Received: {path} with the columns {header}"
        )
    names, file_notes = _files(path, rows)
    others = [name for name in header if name not in COLUMNS]
    labels: np.ndarray | list[int]
    # Cells of a row for the error messages.
    needed = {line: {name: row[name] for name in ("file", *columns)} for line, row in rows.items()}
    for line, row in needed.items():
        if any(len(cell.splitlines()) > 1 for name, cell in row.items() if name != "file"):
            raise ValueError(
                "A class name must not contain a line break; a closing quote is probably "
                f"missing. Received: {row} in line {line} of {path}"
            )
    if columns == [_SEVERAL]:
        labels, class_names = _several(path, needed)
    else:
        labels, class_names = _classes(path, needed, columns)
    return Examples(
        names=names,
        targets=np.array(labels),
        class_names=class_names,
        source=str(path),
        paths=tuple(str(path.parent / name) for name in names),
        splits=_splits(path, rows) if "split" in header else None,
        columns={name: tuple(row[name] for row in rows.values()) for name in others},
        notes=notes + file_notes,
    )


def _find(path: Path, name: str) -> str | None:
    """Returns the name as the file system spells it, or None if the file does not exist."""
    slashed = name.replace("\\", "/")
    forms = (unicodedata.normalize(form, slashed) for form in ("NFC", "NFD"))
    names = itertools.chain((name, slashed), forms)
    # os.path.isfile, unlike Path.is_file, is False for a name that is too long.
    return next((n for n in names if os.path.isfile(os.path.join(path.parent, n))), None)


def _files(path: Path, rows: dict[int, Row]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the image names and any notes; raises `ValueError` if a file is missing."""
    lines: dict[str, int] = {}
    missing, written, outside = [], 0, 0
    for line, row in rows.items():
        if not row["file"] or _ADDRESS.match(row["file"]):
            raise ValueError(
                "`file` must be a local path, not a URL; download the images first. Received: "
                f"{row['file']!r} in line {line} of {path}"
            )
        found = _find(path, row["file"])
        name = found or row["file"]
        if (first := lines.setdefault(name, line)) != line:
            raise ValueError(
                f"Each image must appear only once in the table. Received: {name!r} in lines "
                f"{first} and {line} of {path}"
            )
        if not found:
            missing.append(name)
        written += name != row["file"]
        if os.path.isabs(name) or os.pardir in name:
            outside += os.path.relpath(path.parent / name, path.parent).startswith(_OUTSIDE)
    if missing:
        raise ValueError(
            f"Every file in the table must exist; paths are relative to {path.parent}. Correct "
            f"the column `file` or remove the rows. Received: {len(missing)} missing files, "
            f"starting with {missing[:20]}, in {path}"
        )
    notes = []
    if written:
        notes.append(
            f"File names read with / instead of \\, or in another Unicode form: {written} of "
            f"{len(rows)} names in {path.name}."
        )
    if outside:
        lie = "image lies" if outside == 1 else "images lie"
        notes.append(f"{outside} {lie} outside of {path.parent}.")
    return tuple(lines), tuple(notes)


def _splits(path: Path, rows: dict[int, Row]) -> tuple[str, ...] | None:
    """Returns the split of each image, or None if no image is held out."""
    splits = {line: SPLIT_NAMES.get(row["split"].lower(), "") for line, row in rows.items()}
    found = set(splits.values())
    for line, split in splits.items():
        if not split and (rows[line]["split"] or found & {*SPLITS[1:]}):
            raise ValueError(
                f"`split` must be one of {', '.join(SPLIT_NAMES)}. Received: "
                f"{rows[line]['split']!r} in line {line} of {path}"
            )
    if "train" not in found:
        raise ValueError(f"`split` must be train in at least one row. Received: {path}")
    return tuple(splits.values()) if found & {*SPLITS[1:]} else None


def _several(path: Path, rows: dict[int, Row]) -> tuple[np.ndarray, tuple[str, ...]]:
    shown = []
    for line, row in rows.items():
        names = [name.strip() for name in row[_SEVERAL].split(SEPARATOR)] if row[_SEVERAL] else []
        if not all(names) or len(set(names)) < len(names):
            raise ValueError(
                f"`labels` must contain different class names separated by {SEPARATOR!r}, or be "
                f"empty for an image that shows no class. Received: {row} in line {line} of {path}"
            )
        shown.append(names)
    class_names = tuple(sorted({name for names in shown for name in names}))
    if not class_names:
        raise ValueError(f"`labels` must name a class for at least one image. Received: {path}")
    position = {name: index for index, name in enumerate(class_names)}
    labels = np.zeros((len(shown), len(class_names)), np.uint8)
    for row_of_labels, names in zip(labels, shown, strict=True):
        row_of_labels[[position[name] for name in names]] = 1
    return labels, class_names


def _classes(
    path: Path, rows: dict[int, Row], columns: list[str]
) -> tuple[list[int], tuple[str, ...]]:
    def wrong(line: int, rule: str) -> ValueError:
        return ValueError(f"{rule}. Received: {rows[line]} in line {line} of {path}")

    if columns == ["label"]:
        for line, row in rows.items():
            if not row["label"]:
                raise wrong(line, "`label` must not be empty")
        labels = [row["label"] for row in rows.values()]
        names, targets = np.unique(labels, return_inverse=True)
        return targets.tolist(), tuple(names.tolist())

    wnids = imagenet_wnids()
    position = {wnid: index for index, wnid in enumerate(wnids)}
    indices = {}  # line number -> class index
    for line, row in rows.items():
        if "class_index" not in columns:
            if row["wnid"] not in position:
                raise wrong(line, "`wnid` must be one of the 1000 WordNet IDs of ImageNet-1k")
            indices[line] = position[row["wnid"]]
        elif row["class_index"].isdecimal() and len(row["class_index"]) < 10:
            indices[line] = int(row["class_index"])
        else:
            raise wrong(line, "`class_index` must be a non-negative integer")
    if "wnid" not in columns and "label" in columns and not _are_imagenet(rows, indices):
        return list(indices.values()), _own_names(path, rows, indices)
    for line, index in indices.items():
        if index > 999 or rows[line].get("wnid", wnids[index]) != wnids[index]:
            rule = "`class_index` must be an ImageNet-1k class from 0 to 999 and match `wnid`"
            raise wrong(line, rule)
    return list(indices.values()), imagenet_labels()


def _are_imagenet(rows: dict[int, Row], indices: dict[int, int]) -> bool:
    labels = imagenet_labels()
    return all(
        index < 1000 and rows[line]["label"].replace(" ", "_") == labels[index]
        for line, index in indices.items()
    )


def _own_names(path: Path, rows: dict[int, Row], indices: dict[int, int]) -> tuple[str, ...]:
    pairs = sorted({(index, rows[line]["label"]) for line, index in indices.items()})
    names = tuple(name for _, name in pairs)
    if [index for index, _ in pairs] != list(range(len(pairs))) or len(set(names)) < len(names):
        raise ValueError(
            "`class_index` must number the classes from 0 without gaps, with one `label` per "
            "index. If you remove the column `class_index`, the sorted labels are the classes. "
            f"Received: {pairs[:20]} in {path}"
        )
    return names
