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
IMAGES_OF_A_PART = 1024  # a multiple of usual batch sizes
PARTS_OF_A_ROW_GROUP = 16  # of a Parquet file, in memory at once
_PARTS = "*.part"

Row = dict[str, Any]


def write_table(
    path: Path,
    names: list[str],
    number: int,
    rows_from: Callable[[int], Iterator[tuple[list[Row], bool]]],
    identity: dict[str, str] | None = None,
) -> int:
    """Writes a table in parts and joins them; the file appears at `path` only when complete.

    Complete parts of an interrupted call with the same `identity` are kept.

    Args:
        path: The file to write.
        names: The columns.
        number: Number of images.
        rows_from: Function that takes the index of the first image, and yields for each image from
            there on its rows, and whether it could be read.
        identity: Everything that the rows depend on, by name; also metadata of a Parquet file.

    Returns:
        The number of images that could not be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, parts, lock = (
        path.with_name(f".{path.name}.{end}") for end in ("partial", "parts", "lock")
    )
    identity = {"images": str(number), **(identity or {})}
    with output_folder.exclusive_lock(
        lock, lambda: f"to={path}, which is in use by another process"
    ):
        try:
            with files.naming_full_disk(path):
                failed = _write_parts(parts, path.suffix, names, number, rows_from, identity)
                _JOINS[path.suffix](sorted(parts.glob(_PARTS)), partial, names, identity)
            check_new_file("--to", path, SUFFIXES)  # another program may have written it meanwhile
            os.replace(partial, path)
            shutil.rmtree(parts)
        finally:
            partial.unlink(missing_ok=True)
            if parts.is_dir() and not any(parts.glob(_PARTS)):
                shutil.rmtree(parts)
            lock.unlink(missing_ok=True)
    return failed


def _write_parts(
    folder: Path,
    suffix: str,
    names: list[str],
    number: int,
    rows_from: Callable[[int], Iterator[tuple[list[Row], bool]]],
    identity: dict[str, str],
) -> int:
    """Writes the missing parts; returns the number of images that could not be read."""
    settled = folder / "identity.json"
    if settled.is_file() and json.loads(settled.read_text(encoding="utf-8")) != identity:
        print("Starting anew: an interrupted call had another model, other images or options.")
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    files.write_json(settled, identity)
    done = sorted(folder.glob(_PARTS))
    failed = sum(int(part.stem.partition("-")[2]) for part in done)
    if done:
        say(f"Resuming after {min(len(done) * IMAGES_OF_A_PART, number)} of {number} images.")
    answers = rows_from(len(done) * IMAGES_OF_A_PART)
    for index in range(len(done), -(-number // IMAGES_OF_A_PART)):
        unreadable = 0

        def rows() -> Iterator[Row]:
            nonlocal unreadable
            for of_image, readable in islice(answers, IMAGES_OF_A_PART):
                unreadable += not readable
                yield from of_image

        temporary = folder / "unfinished"
        _PART_WRITERS[suffix](temporary, names, rows())
        os.replace(temporary, folder / f"{index:08d}-{unreadable}.part")
        failed += unreadable
    return failed


def _text(path: Path) -> IO[str]:
    return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")


def _csv(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writerows({name: csv_cell(v) for name, v in row.items()} for row in rows)


def _json_lines(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        for row in rows:
            file.write(json.dumps({n: row[n] for n in names if row.get(n) is not None}) + "\n")


def _json(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    with _text(path) as file:
        file.writelines(f"{json.dumps(row)},\n" for row in rows)


def _parquet(path: Path, names: list[str], rows: Iterable[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    part = list(rows)
    for row in part:
        row["file"] = row["file"].encode(errors="backslashreplace").decode()
    columns = {name: pyarrow.array([row.get(name) for row in part]) for name in names}
    parquet.write_table(pyarrow.table(columns), path)


def _join_text(parts: list[Path], path: Path, before: str = "") -> None:
    with path.open("wb") as file:
        file.write(before.encode(errors="backslashreplace"))
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, file)


def _join_csv(parts: list[Path], path: Path, names: list[str], identity: dict[str, str]) -> None:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(names)
    _join_text(parts, path, header.getvalue())


def _join_json(parts: list[Path], path: Path, names: list[str], identity: dict[str, str]) -> None:
    _join_text(parts, path, "[\n")
    with path.open("rb+") as file:  # without the last comma
        file.seek(-2, os.SEEK_END)
        ending = b"[\n]\n" if file.read() == b"[\n" else b"\n]\n"
        file.seek(-2, os.SEEK_END)
        file.write(ending)


def _join_parquet(
    parts: list[Path], path: Path, names: list[str], identity: dict[str, str]
) -> None:
    import pyarrow
    from pyarrow import parquet

    schemas = map(parquet.read_schema, parts)  # a column without values in a part has no type
    unified = pyarrow.unify_schemas(schemas, promote_options="permissive")
    single = pyarrow.float32()
    types = {"double": single, "list<element: double>": pyarrow.list_(single)}
    types["null"] = pyarrow.string()
    fields = [(field.name, types.get(str(field.type), field.type)) for field in unified]
    schema = pyarrow.schema(fields, identity)
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(parts), PARTS_OF_A_ROW_GROUP):
            some = map(parquet.read_table, parts[start : start + PARTS_OF_A_ROW_GROUP])
            writer.write_table(pyarrow.concat_tables(part.cast(schema) for part in some))


_PART_WRITERS = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet, ".json": _json}
_JOINS: dict[str, Callable[[list[Path], Path, list[str], dict[str, str]], None]] = {
    ".csv": _join_csv,
    ".jsonl": lambda parts, path, *_: _join_text(parts, path),
    ".parquet": _join_parquet,
    ".json": _join_json,
}
