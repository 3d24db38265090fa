"""Datasets described by a CSV or JSON Lines table of images and classes."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

import numpy as np
from sklearn.preprocessing import MultiLabelBinarizer

from keras_vit.data.examples import SPLIT_NAMES, SPLITS, Examples
from keras_vit.data.sources.csv_text import CLASS_COLUMNS, COLUMNS, SEPARATOR, Row, read_rows
from keras_vit.data.target_kinds import NO_CLASSES, NO_TARGETS, NUMBERS, TargetKind
from keras_vit.image_formats import has_image_suffix, leftover
from keras_vit.output_folder import is_output
from keras_vit.preprocessing import imagenet_classes
from keras_vit.storage.find_files import find_files
from keras_vit.storage.names import index_finder
from keras_vit.storage.paths import AnyPath, fields_of_files, is_local, names_below, to_path

_CLASS_COLUMNS = CLASS_COLUMNS[:-1]
_LABELS = CLASS_COLUMNS[-1]
_PREFIX = "target_"  # of the columns of targets
_PARENT = os.path.join(os.pardir, "")
_MAX_COMPARED = 20_000  # names; 300,000 take 12 seconds
_URL = re.compile(r"\w+://")


class NoClassesError(ValueError):
    """A table without a column of image files or of classes."""


def load_table(path: AnyPath, kind: TargetKind | None = None, split: str | None = None) -> Examples:
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
    images. At least one must be for training, unless the table is that of another `split`.

    The table may also have no header line, or be a `metadata.csv` or `metadata.jsonl` of Hugging
    Face, with `file_name` for `file`. A table with other columns can be read if one contains the
    names of images, and the others either are one column of classes or contain only 0 and 1, with
    one column per class. Names without a folder or an extension are completed if only one image
    below the table's folder has that name. `notes` list deviations: another encoding or separator,
    other column names, completed names, images outside of the folder.

    With the kind `NUMBERS`, the targets are the columns whose names begin with `target_`, or else
    all columns but `file` and `split`. With `NO_TARGETS`, the column `file` suffices.
    """
    path = to_path(path)
    images = _Images(path)
    rows, notes = read_rows(
        path,
        lambda cell: bool(_URL.match(cell) or images.find(cell)),
        classes=kind is None,
    )
    header = list(rows[0])
    columns = [name for name in _CLASS_COLUMNS if name in header] or [_LABELS]
    if kind is NUMBERS:
        values = [name for name in header if name not in ("file", "split")]
        columns = [name for name in values if name.startswith(_PREFIX)] or values or [_PREFIX]
    elif kind is NO_TARGETS:
        columns = []
    if not {"file", *columns} <= {*header}:
        raise NoClassesError(
            "The table must have a header line (JSON Lines: keys) with the column `file` and one "
            f"of the columns {', '.join(CLASS_COLUMNS)}; rename the column of the classes to "
            "`label`, or move the table out of the folder if its subfolders are the classes. "
            f"Received: {path} with the columns {header}"
        )
    names, file_notes = images.resolve(rows)
    other_columns = [name for name in header if name not in (*COLUMNS, *columns)]
    for row in rows:
        if any(len(row[name].splitlines()) > 1 for name in columns):
            rule = "A class name must not contain a line break; a closing quote is probably missing"
            raise _invalid(path, columns, row, rule)
    parse = _numbers if kind is NUMBERS else _labels if columns == [_LABELS] else _classes
    targets, class_names = parse(path, rows, columns)
    return Examples(
        names=names,
        targets=targets,
        class_names=class_names,
        source=str(path),
        **fields_of_files(path.parent, names),
        # Images without targets may all be for testing.
        splits=_splits(path, rows, split if columns else "test") if "split" in header else None,
        columns={name: tuple(row[name] for row in rows) for name in other_columns},
        notes=notes + file_notes,
        target_kind=kind,
    )


class _Images:
    """Images that a table can name."""

    def __init__(self, path: AnyPath) -> None:
        self.table, self.folder = path, path.parent
        self.split = split_of(path.stem)

    def find(self, name: str, any_split: bool = True) -> str | None:
        """Returns the path of an image, relative to the table, or None if there is not one.

        Without `any_split`, a name without a folder is not completed by that of another split.
        """
        slashed = name.replace("\\", "/")
        for form in spellings(name):
            if self._exists(form):
                return form
        path = PurePosixPath(_key(slashed))
        stem = str(path.with_suffix("")) if has_image_suffix(path.name) else str(path)
        keys = [str(path), stem, path.name, PurePosixPath(stem).name]
        place = os.path.join(str(self.folder), os.path.dirname(slashed))
        if path.parent.name and (str(path.parent) in self._folders or os.path.isdir(place)):
            keys = keys[:2]  # the file is missing in its folder
        for key in keys:
            candidates = self._by_key.get(key, [])
            if self.split and not any_split and "/" not in key:
                splits = (None, "train", self.split)  # held-out images may be in train/
                candidates = [n for n in candidates if split_of(n.rpartition("/")[0]) in splits]
            if candidates:
                same_split = [n for n in candidates if split_of(n.partition("/")[0]) == self.split]
                candidates = same_split if len(candidates) > 1 and self.split else candidates
                return candidates[0] if len(candidates) == 1 else None
        return None

    def resolve(self, rows: list[Row]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the image names and any notes; raises `ValueError` if a file is missing."""
        lines: dict[str, int] = {}
        missing, renamed, completed, num_outside = [], 0, [], 0
        folder = str(self.folder)
        for row in rows:
            if not row["file"] or _URL.match(row["file"]):
                raise ValueError(
                    "`file` must be a path relative to the table, not a URL; download the images "
                    "first, or move the table beside them. Received: "
                    f"{row['file']!r} in line {row.line} of {self.table}"
                )
            path = self.find(row["file"], any_split="split" in row)
            name = path or row["file"]
            if (first := lines.setdefault(name, row.line)) != row.line:
                raise ValueError(
                    "Each image must appear only once in the table; a table with one row for each "
                    f"box or mask cannot be used. Received: {name!r} in lines {first} and "
                    f"{row.line} of {self.table}"
                )
            if not path:
                missing.append(row)
            elif _key(name) in {_key(row["file"]), _key(row["file"].replace("\\", "/"))}:
                renamed += name != row["file"]
            else:
                completed.append(f"{row['file']!r} as {name!r}")
            if os.path.isabs(name) or os.pardir in name:
                num_outside += os.path.relpath(str(self.folder / name), folder).startswith(_PARENT)
        if missing:
            closest_name = self.closest(missing[0]["file"])
            hint = f" (the closest name is {closest_name!r})" if closest_name else ""
            raise ValueError(
                f"Every file in the table must exist; paths are relative to {self.folder}. Correct "
                f"the column `file` or remove the rows. Received: {len(missing)} missing files, "
                f"starting with {[row['file'] for row in missing[:20]]}, the first in line "
                f"{missing[0].line}{hint}, in {self.table}"
            )
        notes = []
        if renamed:
            notes.append(
                f"File names read with / instead of \\, in another case or Unicode form: {renamed} "
                f"of {len(rows)} names in {self.table.name}."
            )
        if completed:
            notes.append(
                f"File names completed by a folder or an extension: {len(completed)} of "
                f"{len(rows)} names in {self.table.name}, such as {completed[0]}."
            )
        if num_outside:
            subject = "image lies" if num_outside == 1 else "images lie"
            notes.append(f"{num_outside} {subject} outside of {self.folder}.")
        return tuple(lines), tuple(notes)

    def closest(self, name: str) -> str:
        """Returns the image with the most similar name, or an empty string."""
        candidates = itertools.islice(self._by_key, _MAX_COMPARED)
        matches = difflib.get_close_matches(_key(name), candidates, n=1)
        return self._by_key[matches[0]][0] if matches else ""

    def _exists(self, name: str) -> bool:
        if is_local(self.folder):
            # os.path.isfile, unlike Path.is_file, is False for a name that is too long.
            return os.path.isfile(os.path.join(self.folder, name))
        return name in self._listed

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(names_below(self.folder))

    @cached_property
    def _by_key(self) -> dict[str, list[str]]:
        """Paths by lowercase path and name, each with and without the extension."""
        paths: dict[str, list[str]] = defaultdict(list)
        for name in self._images():
            path = PurePosixPath(_key(name))
            for key in {str(path), str(path.with_suffix("")), path.name, path.stem}:
                paths[key].append(name)
        return dict(paths)

    @cached_property
    def _folders(self) -> frozenset[str]:
        """Lowercase paths of the folders with images."""
        return frozenset(os.path.dirname(_key(n)) for names in self._by_key.values() for n in names)

    def _images(self) -> Iterator[str]:
        if not is_local(self.folder):
            yield from find_files(self.folder).images
            return
        root, visited = Path(self.folder).resolve(), set[Path]()
        for folder, inner, files in os.walk(root, followlinks=True):
            real = Path(folder).resolve()
            if real in visited or (os.path.islink(folder) and real.is_relative_to(root)):
                inner.clear()  # its images are found without the link
                continue
            visited.add(real)
            inner[:] = sorted(n for n in inner if not is_ignored(Path(folder, n)))
            for file in sorted(n for n in files if has_image_suffix(n) and not leftover(n)):
                yield os.path.relpath(os.path.join(folder, file), root)


def split_of(name: str) -> str | None:
    """Returns the split that a name such as `train_images` begins with, or None."""
    return SPLIT_NAMES.get(re.split(r"[\W_]+", name.strip("_").lower())[0])


def spellings(name: str) -> Iterator[str]:
    """Yields a file name as it is written, with slashes, and in both Unicode forms."""
    slashed = name.replace("\\", "/")
    yield from (name, slashed)
    yield from (unicodedata.normalize(form, slashed) for form in ("NFC", "NFD"))


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def is_ignored(folder: AnyPath) -> bool:
    """Returns whether a folder is hidden, another program's leftover, or an output."""
    return folder.name.startswith(".") or bool(leftover(folder.name)) or is_output(folder)


def _splits(path: Path, rows: list[Row], part: str | None) -> tuple[str, ...] | None:
    """Returns the split of each image, or None if no image is held out."""
    splits = tuple(SPLIT_NAMES.get(row["split"].lower(), "") for row in rows)
    held_out = {*splits} & {*SPLITS[1:]}
    for row, split in zip(rows, splits, strict=True):
        if not split and (row["split"] or held_out):
            raise ValueError(
                f"`split` must be one of {', '.join(SPLIT_NAMES)}. Received: "
                f"{row['split']!r} in line {row.line} of {path}"
            )
    if "train" not in splits and part in (None, "train"):
        raise ValueError(f"`split` must be train in at least one row. Received: {path}")
    return splits if held_out else None


def _invalid(path: Path, columns: list[str], row: Row, rule: str) -> ValueError:
    cells = {name: row[name] for name in ("file", *columns)}
    return ValueError(f"{rule}. Received: {cells} in line {row.line} of {path}")


def _labels(path: Path, rows: list[Row], columns: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns multi-label targets and class names, from the column `labels`."""
    class_names_by_row = []
    for row in rows:
        names = [name.strip() for name in row[_LABELS].split(SEPARATOR)] if row[_LABELS] else []
        if not all(names) or len(set(names)) < len(names):
            rule = (
                f"`labels` must contain different class names separated by {SEPARATOR!r}, or be "
                "empty for an image that shows no class"
            )
            raise _invalid(path, columns, row, rule)
        class_names_by_row.append(names)
    if not any(class_names_by_row):
        raise ValueError(f"`labels` must name a class for at least one image. Received: {path}")
    binarizer = MultiLabelBinarizer(sparse_output=True)
    labels = binarizer.fit_transform(class_names_by_row).astype(np.uint8)
    return labels.toarray(), tuple(binarizer.classes_)


def _numbers(path: Path, rows: list[Row], columns: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the numbers of each row, (N, D), and the names of the targets."""
    targets = np.full((len(rows), len(columns)), np.nan, np.float32)
    for numbers, row in zip(targets, rows, strict=True):
        for index, name in enumerate(columns):
            with contextlib.suppress(ValueError):
                numbers[index] = float(row[name])
            if not np.isfinite(numbers[index]):
                raise _invalid(path, [name], row, f"`{name}` must be a finite number, as a target")
    return targets, tuple(name.removeprefix(_PREFIX) for name in columns)


def _classes(path: Path, rows: list[Row], columns: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns class indices and class names, from the columns of a single class or none."""
    if not columns:
        return np.zeros(len(rows), int), NO_CLASSES
    invalid = partial(_invalid, path, columns)
    if columns == ["label"]:
        for row in rows:
            if not row["label"]:
                raise invalid(row, "`label` must not be empty")
        names, targets = np.unique([row["label"] for row in rows], return_inverse=True)
        return targets, tuple(names.tolist())

    wnids, labels = imagenet_classes()
    if "class_index" in columns:
        rule = "`class_index` must be a non-negative integer"
        cells = [row["class_index"] for row in rows]
        indices = [int(cell) if cell.isdecimal() and len(cell) < 10 else -1 for cell in cells]
    else:
        rule = "`wnid` must be one of the 1000 WordNet IDs of ImageNet-1k"
        indices = index_finder(wnids)(row["wnid"] for row in rows)
    if -1 in indices:
        raise invalid(rows[indices.index(-1)], rule)
    if columns == ["class_index", "label"]:
        pairs = sorted({(i, row["label"]) for i, row in zip(indices, rows, strict=True)})
        if any(i > 999 or label.replace(" ", "_") != labels[i] for i, label in pairs):
            numbers, custom_labels = zip(*pairs, strict=True)
            if numbers != tuple(range(len(pairs))) or len({*custom_labels}) < len(pairs):
                raise ValueError(
                    "`class_index` must number the classes from 0 without gaps, with one `label` "
                    "per index. If you remove the column `class_index`, the sorted labels are the "
                    f"classes. Received: {pairs[:20]} in {path}"
                )
            return np.array(indices), custom_labels
    for index, row in zip(indices, rows, strict=True):
        if index > 999 or row.get("wnid", wnids[index]) != wnids[index]:
            rule = "`class_index` must be an ImageNet-1k class from 0 to 999 and match `wnid`"
            raise invalid(row, rule)
    return np.array(indices), labels
