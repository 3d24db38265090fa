"""Cache of the properties of inspected images, by path, size and time of the last change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from keras_vit.data.examples import Examples
from keras_vit.data.inspection import Finding
from keras_vit.data.twins import GRID
from keras_vit.escapes import say

#: Smallest number of images of a source that is cached.
LEAST = 256
_TABLE = "findings_1"  # another name if the inspection changes


class AuditCache:
    """Findings on the images of a data source, in an SQLite file in the cache folder of the user.

    Images in memory and sources of less than 256 images are not cached. Without a writable cache
    folder, nothing is cached.

    Args:
        examples: The images.
    """

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self._file: sqlite3.Connection | None = None
        self._stamps: dict[int, str | None] = {}  # from before the inspection
        if len(examples) >= LEAST and examples.stamp(0) is not None:
            with self._without_errors():
                path = cache_file(examples.source)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = sqlite3.connect(path)
                columns = "name BLOB PRIMARY KEY, stamp TEXT, finding TEXT, hash BLOB"
                self._file.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} ({columns})")

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()

    def get(self, indices: Sequence[int]) -> dict[int, Finding | str]:
        """Returns the findings on images that have not changed since, by index."""
        found: dict[int, Finding | str] = {}
        if self._file:
            self._stamps = {i: self.examples.stamp(i) for i in indices}
            names = {os.fsencode(self.examples.names[i]): i for i in indices}
            marks = ", ".join("?" * len(names))
            query = f"SELECT * FROM {_TABLE} WHERE name IN ({marks})"
            with self._without_errors():
                for name, stamp, *finding in self._file.execute(query, tuple(names)):
                    if stamp == self._stamps[names[name]]:
                        found[names[name]] = _parse(*finding)
        return found

    def put(self, findings: Mapping[int, Finding | str]) -> None:
        """Stores findings on images that `get` was asked for, except on unreadable files."""
        rows = [
            (os.fsencode(self.examples.names[index]), stamp, *_cells(found))
            for index, found in (findings.items() if self._file else ())
            if (stamp := self._stamps[index]) and not str(found).startswith("cannot be read")
        ]
        if rows and self._file:
            with self._without_errors(), self._file:
                self._file.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _without_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            say(f"The result of the check of images is not cached: {error}")
            self._file = None


def cache_file(source: str) -> Path:
    """Returns the SQLite file for a data source, which may not exist yet."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute()
    place = source if "://" in source else os.path.abspath(source)
    name = hashlib.sha256(os.fsencode(place)).hexdigest()[:32]
    return home / "keras_vit" / "checked_images" / f"{name}.sqlite"


def _cells(found: Finding | str) -> tuple[str, bytes | None]:
    if isinstance(found, str):
        return json.dumps(found), None
    content = {**vars(found)}
    image_hash = content.pop("hash")
    return json.dumps(content), None if image_hash is None else image_hash.tobytes()


def _parse(text: str, image_hash: bytes | None) -> Finding | str:
    content = json.loads(text)
    if isinstance(content, str):
        return content
    values = None if image_hash is None else np.frombuffer(image_hash, np.uint8).reshape(GRID, GRID)
    pairs = {name: tuple(content[name]) for name in ("size", "range")}
    return Finding(**{**content, **pairs, "hash": values})
