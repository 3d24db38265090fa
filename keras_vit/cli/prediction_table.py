"""Output of prediction tables as CSV, JSON Lines, Parquet or JSON files."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from keras_vit import files, output_folder
from keras_vit.cli.options import check_new_file
from keras_vit.escapes import csv_cell, say

SUFFIXES = (".csv", ".jsonl", ".parquet", ".json")
IMAGES_PER_PART = 1024  # a multiple of common batch sizes
PARTS_PER_ROW_GROUP = 16  # of a Parquet file; a row group is built in memory
_PART_PATTERN = "*.part"

Row = dict[str, Any]


def write_table(
    path: Path,
    columns: list[str],
    num_images: int,
    rows_from: Callable[[int], Iterator[tuple[list[Row], bool]]],
    identity: dict[str, str] | None = None,
) -> int:
    """Writes a table in parts and joins them; returns the number of images that cannot be read.

    The file appears at `path` only when complete. Complete parts of an interrupted call with the
    same `identity` are kept: all that the rows depend on, also stored as metadata of a Parquet
    file. `rows_from` takes the index of the first image, and yields for each image from this index
    on its rows and whether it could be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, parts, lock = (
        path.with_name(f".{path.name}.{end}") for end in ("partial", "parts", "lock")
    )
    identity = {"images": str(num_images), **(identity or {})}
    with output_folder.exclusive_lock(
        lock, lambda: f"to={path}, which is in use by another process"
    ):
        try:
            with files.naming_full_disk(path):
                failed = _write_parts(parts, path.suffix, columns, num_images, rows_from, identity)
                _JOINS[path.suffix](sorted(parts.glob(_PART_PATTERN)), partial, columns, identity)
            check_new_file("--to", path, SUFFIXES)  # another program may have written it
            os.replace(partial, path)
            shutil.rmtree(parts)
        finally:
            partial.unlink(missing_ok=True)
            if parts.is_dir() and not any(parts.glob(_PART_PATTERN)):
                shutil.rmtree(parts)
            lock.unlink(missing_ok=True)
    return failed


def _write_parts(
    folder: Path,
    suffix: str,
    columns: list[str],
    num_images: int,
    rows_from: Callable[[int], Iterator[tuple[list[Row], bool]]],
    identity: dict[str, str],
) -> int:
    """Writes the missing parts; returns the number of images that could not be read."""
    identity_path = folder / "identity.json"
    if identity_path.is_file() and json.loads(identity_path.read_text("utf-8")) != identity:
        print("Starting anew: an interrupted call had another model, other images or options.")
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    files.write_json(identity_path, identity)
    parts = sorted(folder.glob(_PART_PATTERN))
    failed = sum(int(part.stem.partition("-")[2]) for part in parts)
    start = len(parts) * IMAGES_PER_PART
    if parts:
        say(f"Resuming after {min(start, num_images)} of {num_images} images.")
    image_rows = rows_from(start)
    for index in range(len(parts), -(-num_images // IMAGES_PER_PART)):
        unreadable = 0

        def part_rows() -> Iterator[Row]:
            nonlocal unreadable
            for rows, is_readable in islice(image_rows, IMAGES_PER_PART):
                unreadable += not is_readable
                yield from rows

        temporary = folder / "unfinished"
        _PART_WRITERS[suffix](temporary, columns, part_rows())
        os.replace(temporary, folder / f"{index:08d}-{unreadable}.part")
        failed += unreadable
    return failed


def _open_text(path: Path) -> IO[str]:
    return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")


def _write_csv(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    with _open_text(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writerows({name: csv_cell(cell) for name, cell in row.items()} for row in rows)


def _write_jsonl(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    with _open_text(path) as file:
        for row in rows:
            file.write(json.dumps({n: row[n] for n in columns if row.get(n) is not None}) + "\n")


def _write_json(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    with _open_text(path) as file:
        file.writelines(f"{json.dumps(row)},\n" for row in rows)


def _write_parquet(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    from pyarrow import parquet

    from keras_vit.export.arrow_table import arrow_table

    row_list = list(rows)
    for row in row_list:
        row["file"] = row["file"].encode(errors="backslashreplace").decode()
    parquet.write_table(arrow_table(row_list, columns), path)


def _join_text(parts: list[Path], path: Path, prefix: str = "") -> None:
    with path.open("wb") as file:
        file.write(prefix.encode(errors="backslashreplace"))
        for part in parts:
            with part.open("rb") as part_file:
                shutil.copyfileobj(part_file, file)


def _join_csv(parts: list[Path], path: Path, columns: list[str], identity: dict[str, str]) -> None:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(map(csv_cell, columns))
    _join_text(parts, path, header.getvalue())


def _join_json(parts: list[Path], path: Path, columns: list[str], identity: dict[str, str]) -> None:
    _join_text(parts, path, "[\n")
    with path.open("rb+") as file:  # replaces the last comma
        file.seek(-2, os.SEEK_END)
        ending = b"[\n]\n" if file.read() == b"[\n" else b"\n]\n"
        file.seek(-2, os.SEEK_END)
        file.write(ending)


def _join_parquet(
    parts: list[Path], path: Path, columns: list[str], identity: dict[str, str]
) -> None:
    import pyarrow
    from pyarrow import parquet

    schemas = map(parquet.read_schema, parts)  # a column without values in a part has no type
    unified = pyarrow.unify_schemas(schemas, promote_options="permissive")
    single = pyarrow.float32()
    types = {"double": single, "list<element: double>": pyarrow.list_(single)}
    fields = [(field.name, types.get(str(field.type), field.type)) for field in unified]
    schema = pyarrow.schema(fields, identity)
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(parts), PARTS_PER_ROW_GROUP):
            tables = map(parquet.read_table, parts[start : start + PARTS_PER_ROW_GROUP])
            writer.write_table(pyarrow.concat_tables(table.cast(schema) for table in tables))


_PART_WRITERS = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
    ".json": _write_json,
}
_JOINS: dict[str, Callable[[list[Path], Path, list[str], dict[str, str]], None]] = {
    ".csv": _join_csv,
    ".jsonl": lambda parts, path, *_: _join_text(parts, path),
    ".parquet": _join_parquet,
    ".json": _join_json,
}
