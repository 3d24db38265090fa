"""Output of prediction tables as CSV, JSON Lines, Parquet or JSON files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from keras_vit import files, output_folder
from keras_vit.cli.options import check_new_file
from keras_vit.escapes import csv_cell

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = (".csv", ".jsonl", ".parquet", ".json")
_PART = 1000  # rows of a Parquet file buffered in memory

Row = dict[str, Any]


class Embeddings:
    """Table of image features."""

    def __init__(self) -> None:
        self.columns = ["file", "embedding", "message"]

    def rows(self, file: str, found: tuple[np.ndarray, str]) -> list[Row]:
        """Returns the table row of one image."""
        vector, message = found
        embedding = None if message else [float(str(value)) for value in vector]
        return [{"file": file, "embedding": embedding, "message": message or None}]


def write_table(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    """Writes a table; the file appears at `path` only when complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, lock = (path.with_name(f".{path.name}.{end}") for end in ("partial", "lock"))
    with output_folder.alone(lock, lambda: f"to={path}, which is in use by another process"):
        try:
            write_rows = _WRITERS[path.suffix]
            with files.naming_full_disk(path):
                write_rows(partial, names, rows)
            check_new_file("--to", path, SUFFIXES)  # another program may have written it meanwhile
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _text(path: Path) -> IO[str]:
    return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")


def _csv(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: csv_cell(v) for name, v in row.items()} for row in rows)


def _json_lines(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        for row in rows:
            file.write(json.dumps({n: row[n] for n in names if row.get(n) is not None}) + "\n")


def _parquet(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    left = iter(rows)
    part = list(islice(left, _PART))

    def kind(name: str) -> Any:
        if name == "embedding":
            return pyarrow.list_(pyarrow.float32())
        texts = ("file", "label", "prediction", "present", "message")
        number = any(isinstance(row.get(name), float) for row in part)
        return pyarrow.float32() if number or not name.startswith(texts) else pyarrow.string()

    schema = pyarrow.schema([(name, kind(name)) for name in names])
    with parquet.ParquetWriter(path, schema) as writer:
        while part:
            for row in part:
                row["file"] = row["file"].encode(errors="backslashreplace").decode()
            writer.write_table(pyarrow.Table.from_pylist(part, schema))
            part = list(islice(left, _PART))


def _json(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        before = "["
        for row in rows:
            file.write(f"{before}\n{json.dumps(row)}")
            before = ","
        file.write("[]\n" if before == "[" else "\n]\n")


_WRITERS = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet, ".json": _json}
