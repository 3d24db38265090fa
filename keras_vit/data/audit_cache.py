"""Cache of the properties of inspected images, by path, size and modification time."""

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
from keras_vit.data.inspection import ImageProperties
from keras_vit.data.near_duplicates import MAX_COMPARED, THUMBNAIL_SIDE
from keras_vit.escapes import say

#: Smallest number of images of a data source that is cached.
MIN_CACHED_IMAGES = 256
_TABLE = "findings_2"  # another name if the inspection changes


class AuditCache:
    """Properties of the images of a data source, in an SQLite file in the user's cache folder.

    Images in memory and sources of fewer than 256 images are not cached. Without a writable cache
    folder, nothing is cached.
    """

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self._connection: sqlite3.Connection | None = None
        self._stamps: dict[int, str | None] = {}  # read before the inspection
        self._table = _TABLE + "_without_hashes" * (len(examples) > MAX_COMPARED)
        if len(examples) >= MIN_CACHED_IMAGES and examples.stamp(0) is not None:
            with self._without_errors():
                path = cache_file(examples.source)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(path)
                columns = "name BLOB PRIMARY KEY, stamp TEXT, finding TEXT, hash BLOB"
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")

    def close(self) -> None:
        """Closes the file."""
        if self._connection:
            self._connection.close()

    def get(self, indices: Sequence[int]) -> dict[int, ImageProperties | str]:
        """Returns the cached results for images that have not changed since, by index."""
        results: dict[int, ImageProperties | str] = {}
        if self._connection:
            self._stamps = {i: self.examples.stamp(i) for i in indices}
            names = {os.fsencode(self.examples.names[i]): i for i in indices}
            marks = ", ".join("?" * len(names))
            query = f"SELECT * FROM {self._table} WHERE name IN ({marks})"
            with self._without_errors():
                for name, stamp, *columns in self._connection.execute(query, tuple(names)):
                    if stamp == self._stamps[names[name]]:
                        results[names[name]] = _parse(*columns)
        return results

    def put(self, results: Mapping[int, ImageProperties | str]) -> None:
        """Stores the results for images of the last call of `get`, except for unreadable files."""
        rows = [
            (os.fsencode(self.examples.names[index]), stamp, *_cells(result))
            for index, result in (results.items() if self._connection else ())
            if (stamp := self._stamps[index]) and not str(result).startswith("cannot be read")
        ]
        if rows and self._connection:
            query = f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?, ?)"
            with self._without_errors(), self._connection:
                self._connection.executemany(query, rows)

    @contextlib.contextmanager
    def _without_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            say(f"The result of the check of images is not cached: {error}")
            self._connection = None


def cache_file(source: str) -> Path:
    """Returns the SQLite file for a data source, which may not exist yet."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute()
    location = source if "://" in source else os.path.abspath(source)
    name = hashlib.sha256(os.fsencode(location)).hexdigest()[:32]
    return home / "keras_vit" / "checked_images" / f"{name}.sqlite"


def _cells(result: ImageProperties | str) -> tuple[str, bytes | None]:
    if isinstance(result, str):
        return json.dumps(result), None
    content = {**vars(result)}
    image_hash = content.pop("hash")
    return json.dumps(content), None if image_hash is None else image_hash.tobytes()


def _parse(text: str, image_hash: bytes | None) -> ImageProperties | str:
    content = json.loads(text)
    if isinstance(content, str):
        return content
    hash = None
    if image_hash is not None:
        hash = np.frombuffer(image_hash, np.uint8).reshape(THUMBNAIL_SIDE, THUMBNAIL_SIDE)
    pairs = {name: tuple(content[name]) for name in ("size", "range")}
    return ImageProperties(**{**content, **pairs, "hash": hash})
