"""Parser for CSV and JSON Lines tables."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_vit.data.examples import SPLIT_NAMES
from keras_vit.escapes import CSV_TEXT
from keras_vit.files import without_repeats

CLASS_COLUMNS = ("class_index", "wnid", "label", "labels")
COLUMNS = ("file", *CLASS_COLUMNS, "split")
SEPARATOR = "|"
# Synonyms of each column, in order of precedence.
_SYNONYMS = {
    "file": "file_name filename image_path path image",
    "label": "class category target class_name label_name species class_id classid",
    "labels": "tags classes categories attributes attribute_ids",
}
_KNOWN_NAMES = {*COLUMNS, *" ".join(_SYNONYMS.values()).split()}
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_MAX_PRINTED = 80  # characters of a damaged line
_EXCEL_SEPARATOR = re.compile(r'"?sep=(.)"?[^\S\n]*(?=\n|$)', re.IGNORECASE)
_INDEX_PREFIX = "unnamed:"  # begins the name of an index column that pandas wrote
# Cells of a column with 1 for the images of a class, else 0.
_TRUE = {"1", "1.0", "1,0", "true"}
_BOOLEANS = _TRUE | {"0", "0.0", "0,0", "false"}

# First line and cells of each row.
Lines = list[tuple[int, list[str]]]


class _Joined(str):
    """Names of a JSON list, with `SEPARATOR` between them."""

    __slots__ = ()


class Row(dict[str, str]):
    """Cells of a row by column, with the number of its first line."""

    __slots__ = ("line",)

    def __init__(self, cells: dict[str, str], line: int) -> None:
        super().__init__(cells)
        self.line = line


def read_rows(
    path: Path, names_image: Callable[[str], bool], *, classes: bool = True
) -> tuple[list[Row], tuple[str, ...]]:
    """Reads the rows of a CSV table, or of a JSON Lines table if the path ends in `.jsonl`.

    Unless `classes` is False, the columns of classes are found and renamed.
    """
    notes: list[str] = []
    text = _decode(path, notes)
    if path.suffix.lower() == ".jsonl":
        header, lines = _read_objects(path, text)
    else:
        header, lines = _read_cells(path, text, names_image, notes)
    if not lines:
        raise ValueError(f"The table must contain at least one image. Received: {path}")
    header = _known_names(path, header, notes, _SYNONYMS if classes else ("file",))
    if "file" not in header:
        for i, name in enumerate(header):  # the first column whose cells name images
            first_cells = [cells[i] if i < len(cells) else "" for _, cells in lines[:20]]
            if name and not names_image(name) and all(map(names_image, first_cells)):
                notes.append(f"The column `{name}` of {path.name} is used as `file`.")
                header[i] = "file"
                break
    indices = [i for i, n in enumerate(header) if n and not n.lower().startswith(_INDEX_PREFIX)]
    rows = []
    for line, cells in lines:
        if any(cells[len(header) :]):
            raise ValueError(
                "A row must not have more cells than the header line. Put cells that contain "
                f"the separator in quotes. Received: {len(cells)} cells and {len(header)} "
                f"columns in line {line} of {path}"
            )
        rows.append(Row({header[i]: cells[i] if i < len(cells) else "" for i in indices}, line))
    if "" in header:
        notes.append(f"Columns without a name in {path.name} are ignored.")
    if classes and {*CLASS_COLUMNS} & {*header} == {"labels"}:
        _find_separator(path, rows, notes)
    if classes and "file" in header and not {*CLASS_COLUMNS} & {*header}:
        _find_class_columns(path, rows, notes)
    return rows, tuple(notes)


def _decode(path: Path, notes: list[str]) -> str:
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    encodings = {"utf-8": "", "cp1252": "Windows-1252"}
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = {"utf-16": "UTF-16"}
    elif b"\0\0" in (content[1:4:2], content[:4:2]):  # two letters of ASCII
        encodings = {"utf-16-le" if content[1:2] == b"\0" else "utf-16-be": "UTF-16"}
    for encoding in encodings:
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            break
    else:
        raise ValueError(
            "A table must be text in UTF-8, UTF-16 or Windows-1252. Save it as CSV UTF-8. "
            f"Received: {path}"
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(
            "A table must be text without NUL bytes. Save it as CSV UTF-8. Received: a NUL byte "
            f"in line {line} of {path}"
        )
    if name := encodings[encoding]:
        word = re.search(r"\w{0,20}[^\W\x00-\x7f]\w{0,20}", text)
        example = f", which gives words such as {word[0]}" if word else ""
        notes.append(f"{path.name} is read as {name}{example}.")
    return text


def _read_cells(
    path: Path, text: str, names_image: Callable[[str], bool], notes: list[str]
) -> tuple[list[str], Lines]:
    def score(delimiter: str) -> tuple[int, bool, int]:
        first_row: list[str] = []
        with contextlib.suppress(ValueError):
            first_row = next(_cells(path, text, delimiter), (0, first_row))[1]
        num_known = len({cell.lower() for cell in first_row} & _KNOWN_NAMES)
        return num_known, not num_known and any(map(names_image, first_row)), len(first_row)

    if separator_line := _EXCEL_SEPARATOR.match(text):
        # The line break stays, so that line numbers are those of the file.
        text = text[separator_line.end() :]
    delimiter = separator_line[1] if separator_line else max(_DELIMITERS, key=score)
    lines = list(_cells(path, text, delimiter))
    if not lines:
        return [], lines
    if delimiter != ",":
        delimiter_name = _DELIMITERS.get(delimiter, repr(delimiter))
        notes.append(f"The columns of {path.name} are separated by {delimiter_name}.")
    if score(delimiter)[:2] == (0, True) and (header := _guess_header(lines, names_image)):
        notes.append(f"{path.name} has no header line: its columns are {', '.join(header)}.")
        return header, lines
    return lines[0][1], lines[1:]


def _cells(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line number and the cells of each row that is not blank."""
    # Strict: otherwise an unpaired quote turns all rows up to the next quote into a single cell.
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
    line, escaped = 1, "'" in text
    try:
        for row in reader:
            cells = [re.sub(*CSV_TEXT, c.strip()) if escaped else c.strip() for c in row]
            if any(cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            "Every quoted cell of a table must end with a quote; one is probably missing. "
            f"Received: {error}, in the row at line {line} of {path}"
        ) from error


def _guess_header(lines: Lines, names_image: Callable[[str], bool]) -> list[str] | None:
    """Guesses the names of two columns, or of three if one contains only split names."""
    rows = [cells for _, cells in lines]
    header = ["label"] * len(rows[0])
    if len(header) == 3:
        for i in range(3):
            if all(len(row) > i and row[i].lower() in SPLIT_NAMES for row in rows):
                header[i] = "split"
                break
    header[next(i for i, cell in enumerate(rows[0]) if names_image(cell))] = "file"
    return header if header.count("label") == 1 else None


def _read_objects(path: Path, text: str) -> tuple[list[str], Lines]:
    objects: dict[int, dict[str, str]] = {}
    for line, source in enumerate(text.split("\n"), 1):
        if not source.strip():
            continue
        try:
            fields = json.loads(source, object_pairs_hook=without_repeats)
            if not isinstance(fields, dict):
                raise ValueError
            objects[line] = {name.strip(): _cell(name, value) for name, value in fields.items()}
        except (ValueError, RecursionError) as error:
            raise ValueError(
                "Every line must be a JSON object without repeated keys; a label must be text "
                "or a number, and `labels` must be a list of labels that do not contain "
                f"{SEPARATOR!r}. Received: {source[:_MAX_PRINTED]!r} in line {line} of {path}"
            ) from error
    header = list(dict.fromkeys(name for cells in objects.values() for name in cells))
    return header, [(n, [cells.get(k, "") for k in header]) for n, cells in objects.items()]


def _cell(name: str, value: Any) -> str:
    """Converts a JSON value to the text of a CSV cell."""
    if isinstance(value, list) and name.strip().lower() == "labels":
        cells = [_cell("label", label) for label in value]
        if not all(cells) or any(SEPARATOR in cell for cell in cells):
            raise ValueError
        return _Joined(SEPARATOR.join(cells))
    if isinstance(value, (dict, list)) and name.strip().lower() in _KNOWN_NAMES:
        raise ValueError
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    text.encode()  # raises UnicodeEncodeError, a ValueError, on lone surrogates
    if "\0" in text:
        raise ValueError
    return text.strip()


def _known_names(
    path: Path, header: list[str], notes: list[str], columns: Iterable[str]
) -> list[str]:
    header = [name.lower() if name.lower() in COLUMNS else name for name in header]
    for column in columns:
        lower_names = [name.lower() for name in header]
        synonym = next((name for name in _SYNONYMS[column].split() if name in lower_names), None)
        alternatives = CLASS_COLUMNS if column in CLASS_COLUMNS else ("file",)
        if synonym and not {*alternatives} & {*header}:
            notes.append(f"The column `{synonym}` of {path.name} is used as `{column}`.")
            header[lower_names.index(synonym)] = column
    if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
        raise ValueError(
            f"The columns of a table must have different names. Received: {repeated} more than "
            f"once in {path}"
        )
    return header


def _find_separator(path: Path, rows: list[Row], notes: list[str]) -> None:
    """Writes `SEPARATOR` for another, if the names in `labels` occur alone or are numbers."""
    cells = [row["labels"] for row in rows if row["labels"]]
    if any(SEPARATOR in cell or isinstance(cell, _Joined) for cell in cells):
        return
    for separator in (";", ",", " "):
        parts = [[part.strip() for part in cell.split(separator)] for cell in cells]
        names = {name for row in parts for name in row}
        alone = {row[0] for row in parts if len(row) == 1}
        if all(len(row) == 1 for row in parts):
            continue
        if names <= alone or (alone and all(map(str.isdecimal, names))):
            for row in rows:
                row["labels"] = row["labels"].replace(separator, SEPARATOR)
            notes.append(f"The names in `labels` of {path.name} are separated by {separator!r}.")
            return
        notes.append(
            f"The names in `labels` of {path.name} contain {separator!r}, because not all parts "
            f"occur alone; write {SEPARATOR!r} between the names of an image."
        )


def _find_class_columns(path: Path, rows: list[Row], notes: list[str]) -> None:
    """Renames the only other column to `label`, or joins columns of zeros and ones."""
    others = [name for name in rows[0] if name not in ("file", "split")]
    if len(others) == 1:
        notes.append(f"The column `{others[0]}` of {path.name} is used as `label`.")
        for row in rows:
            row["label"] = row.pop(others[0])
    elif len(others) > 1 and all(row[name].lower() in _BOOLEANS for row in rows for name in others):
        names_by_row = [[name for name in others if row.pop(name).lower() in _TRUE] for row in rows]
        column = "label" if all(len(names) == 1 for names in names_by_row) else "labels"
        for row, names in zip(rows, names_by_row, strict=True):
            row[column] = SEPARATOR.join(names)
        notes.append(f"The columns of {path.name} are read as classes: {', '.join(others)}.")
