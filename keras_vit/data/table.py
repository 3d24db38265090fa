"""A CSV file that names images and their classes."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from keras_vit.data.examples import Examples
from keras_vit.preprocessing import imagenet_labels, imagenet_wnids

_CLASS_COLUMNS = ("class_index", "wnid", "label")
_SEVERAL = "labels"
SEPARATOR = "|"

Row = dict[str, str]


def load_table(path: str | os.PathLike[str]) -> Examples:
    r"""Reads a CSV file with a column `file` and at least one that tells the class.

    `class_index` and `wnid` stand for the 1000 ImageNet classes, so that `class_names` are all of
    them, in their order; but where `class_index` comes with a `label` of its own, the labels are
    the classes and the index their order. `label` alone makes its sorted values the classes. Of
    several columns `class_index` decides before `wnid` before `label`. Other columns, such as
    the camera, are kept as they are: `keras-vit evaluate --report` tells the accuracy on each of
    their values.

    Where none of them is there, `labels` holds the names of all classes that an image shows, such
    as `daisy|rose`, and nothing where it shows none; its sorted names are the classes.

    Args:
        path: The CSV file (UTF-8, commas, header line). Files are relative to its folder.

    Returns:
        The images in the order of the rows, named as in the column `file`; with a column `labels`
        they have several labels each, (N, K). `columns` are the other ones.

    Raises:
        ValueError: If a column is missing, a file does not exist or is named twice, or a class is
            unknown or contradictory, empty, or named twice for one image.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.jpg").touch()
        >>> _ = (folder / "labels.csv").write_text("file,label\na.jpg,daisy\n")
        >>> load_table(folder / "labels.csv").class_names
        ('daisy',)
    """
    path = Path(path)
    # Spreadsheets write a byte order mark, which must not become part of the first column's name.
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        columns = [name for name in _CLASS_COLUMNS if name in (reader.fieldnames or ())]
        if not columns and _SEVERAL in (reader.fieldnames or ()):
            columns = [_SEVERAL]
        if "file" not in (reader.fieldnames or ()) or not columns:
            raise ValueError(
                "The CSV file must have a header line with the column `file` and one of "
                f"{', '.join([*_CLASS_COLUMNS, _SEVERAL])}. Received: {path} with the columns "
                f"{reader.fieldnames}"
            )
        known = {"file", *_CLASS_COLUMNS, _SEVERAL}
        others: dict[str, list[str]] = {
            name: [] for name in reader.fieldnames or () if name and name not in known
        }
        rows = {}  # line number -> row
        for row in reader:
            cells = {name: (row[name] or "").strip() for name in ["file", *columns, *others]}
            for name, values in others.items():
                values.append(cells.pop(name))
            rows[reader.line_num] = cells
    _check_files(path, rows)
    labels: np.ndarray | list[int]
    if columns == [_SEVERAL]:
        labels, class_names = _several(path, rows)
    else:
        labels, class_names = _classes(path, rows, columns)
    names = tuple(row["file"] for row in rows.values())
    return Examples(
        names=names,
        labels=np.array(labels),
        class_names=class_names,
        source=str(path),
        paths=tuple(str(path.parent / name) for name in names),
        columns={name: tuple(values) for name, values in others.items()},
    )


def _check_files(path: Path, rows: dict[int, Row]) -> None:
    if not rows:
        raise ValueError(f"The CSV file must name at least one image. Received: {path} without any")
    first_line: dict[str, int] = {}
    for line, row in rows.items():
        if (first := first_line.setdefault(row["file"], line)) != line:
            raise ValueError(
                f"The CSV file must name each image once. Received: {row['file']!r} in lines "
                f"{first} and {line} of {path}"
            )
    missing = [name for name in first_line if not (path.parent / name).is_file()]
    if missing:
        raise ValueError(
            f"Every file in the CSV file must exist, seen from {path.parent}. Correct the column "
            f"`file` or remove the rows. Received: {len(missing)} missing, the first of them "
            f"{missing[:20]}"
        )


def _several(path: Path, rows: dict[int, Row]) -> tuple[np.ndarray, tuple[str, ...]]:
    shown = []
    for line, row in rows.items():
        names = [name.strip() for name in row[_SEVERAL].split(SEPARATOR)] if row[_SEVERAL] else []
        if not all(names) or len(set(names)) < len(names):
            raise ValueError(
                f"`labels` must hold different names with {SEPARATOR!r} between them, or nothing "
                f"for an image that shows no class. Received: {row} in line {line} of {path}"
            )
        shown.append(names)
    class_names = tuple(sorted({name for names in shown for name in names}))
    if not class_names:
        raise ValueError(
            f"`labels` must name a class for at least one image. Received: {path} without any"
        )
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
        names = sorted({row["label"] for row in rows.values()})
        position = {name: index for index, name in enumerate(names)}
        return [position[row["label"]] for row in rows.values()], tuple(names)

    wnids = imagenet_wnids()
    position = {wnid: index for index, wnid in enumerate(wnids)}
    indices = {}  # line number -> class index
    for line, row in rows.items():
        if "class_index" not in columns:
            if row["wnid"] not in position:
                raise wrong(line, "`wnid` must be one of the 1000 WordNet ids of ImageNet-1k")
            indices[line] = position[row["wnid"]]
        elif row["class_index"].isdecimal():
            indices[line] = int(row["class_index"])
        else:
            raise wrong(line, "`class_index` must be a whole number, counted from 0")
    if "wnid" not in columns and "label" in columns and not _are_imagenet(rows, indices):
        return list(indices.values()), _own_names(path, rows, indices)
    for line, index in indices.items():
        if index > 999 or rows[line].get("wnid", wnids[index]) != wnids[index]:
            rule = "`class_index` must be a class of ImageNet-1k, 0 to 999, and agree with `wnid`"
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
            "`class_index` must count the classes from 0 without a gap, each with one `label`. "
            "Without the column, the sorted labels are the classes. "
            f"Received: {pairs[:20]} in {path}"
        )
    return names
