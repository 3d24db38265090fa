"""Reading of folders that are packed into TFRecord shards, which contain the files unchanged."""

from __future__ import annotations

import bisect
import errno
import functools
import io
import os
from collections.abc import Sequence
from typing import Any

import fsspec
import google_crc32c
import numpy as np
import pyarrow.compute
import pyarrow.parquet
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from upath import UPath, registry

from keras_vit.storage.errors import INDEX, reading
from keras_vit.storage.names import Names

#: Number of bytes of a record before and after its content.
HEADER_SIZE, FOOTER_SIZE = 12, 4
_MASK = 0xA282EAD8  # https://www.tensorflow.org/tutorials/load_data/tfrecord


def masked_crc(content: bytes) -> bytes:
    """Returns the checksum of `content` in a TFRecord file, 4 bytes."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + _MASK & 0xFFFFFFFF).to_bytes(4, "little")


class PackedFileSystem(AbstractFileSystem):
    """File system of fsspec with the files of packed shards, for reading.

    Args:
        folder: Folder of the shards, local or a URL.

    Raises:
        ValueError: If a shard is missing or has another size than in the index.
    """

    protocol = "packed"

    def __init__(self, folder: str, **options: Any) -> None:
        super().__init__(folder=folder, **options)
        self.source = folder
        self.shards, self.folder = fsspec.core.url_to_fs(folder)
        index = self._read_index("name", "image", "shard", "offset", "length")
        self.sizes = [int(size) for size in index.schema.metadata[b"sizes"].split()]
        for number, size in enumerate(self.sizes):
            path = self.shard(number)
            actual = self.shards.size(path) if self.shards.exists(path) else "no"
            if actual != size:
                raise ValueError(
                    f"Every shard must have the size that the index states; pack the folder again. "
                    f"Received: {path} of {actual} bytes, not {size}"
                )
        self.open_local = functools.lru_cache(maxsize=128)(io.FileIO)  # keeps the last shards open
        self.names = index["name"].combine_chunks()
        self.images, self.shard_numbers, self.offsets, self.lengths = (
            index[name].to_numpy() for name in ("image", "shard", "offset", "length")
        )
        del index  # a copy, 100 MB for a million files
        pyarrow.default_memory_pool().release_unused()

    def _read_index(self, *columns: str) -> pyarrow.Table:
        with reading(self.source), self.shards.open(f"{self.folder}/{INDEX}") as file:
            return pyarrow.parquet.read_table(file, columns=list(columns))

    @functools.cached_property
    def modified(self) -> str:
        """Time at which the folder was packed."""
        info = self.shards.info(f"{self.folder}/{INDEX}")
        return str(info.get("mtime") or info.get("LastModified") or info.get("updated") or "")

    @functools.cached_property
    def digests(self) -> Any:
        """SHA-256 of each file."""
        return self._read_index("sha256")["sha256"]

    def sha256(self, path: str) -> bytes:
        """Returns the SHA-256 of a file."""
        return self.digests[self.position(path)].as_py()

    def shard(self, number: int) -> str:
        """Returns the path of a shard."""
        return f"{self.folder}/{shard_name(number)}"

    def position(self, path: str) -> int:
        """Returns the number of files before `path` in the index."""
        name = os.fsencode(path.lstrip("/"))
        return bisect.bisect_left(self.names, name, key=lambda value: value.as_py())

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Returns the files and folders in a folder."""
        prefix = path.strip("/") + "/" if path.strip("/") else ""
        entries, index = [], self.position(prefix)
        while index < len(self.names) and self._name(index).startswith(prefix):
            child, slash, _ = self._name(index)[len(prefix) :].partition("/")
            if slash:
                entries.append({"name": f"{prefix}{child}", "type": "directory", "size": 0})
                index = self.position(f"{prefix}{child}0")  # "0" follows "/" in ASCII
            else:
                entries.append(self._file_info(index))
                index += 1
        if not entries:
            entries = [self.info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Returns name, size and type of a file or folder."""
        name, index = path.strip("/"), self.position(path)
        if index < len(self.names) and self._name(index) == name:
            return self._file_info(index)
        index = self.position(f"{name}/")
        if name and not (index < len(self.names) and self._name(index).startswith(f"{name}/")):
            raise FileNotFoundError(f"{name} is not in {self.folder}")
        return {"name": name, "type": "directory", "size": 0}

    def find(self, path: str, *args: Any, detail: bool = False, **options: Any) -> Any:
        """Returns all files below a folder, as a dictionary of `info` with `detail`."""
        prefix = path.strip("/") + "/" if path.strip("/") else ""
        end = self.position(f"{path.strip('/')}0") if prefix else len(self.names)  # "0" follows "/"
        files = range(self.position(prefix), end)
        infos = {self._name(i): self._file_info(i) if detail else None for i in files}
        return infos if detail else list(infos)

    def all_names(self, *, image: bool) -> Names | None:
        """Returns the names of all images or all other files; None if a name is not UTF-8."""
        try:
            names = self.names.cast(pyarrow.string())
        except pyarrow.ArrowInvalid:
            return None
        return Names(names, np.flatnonzero(self.images == image).astype(np.uint32))

    def rows(self, folder: str, names: Sequence[str]) -> np.ndarray | None:
        """Returns the row of each file in the index; None if a file is missing in the index."""
        if isinstance(names, Names) and len(names.array) == len(self.names):  # from `all_names`
            return names.rows
        paths = [os.fsencode(f"{folder}/{name}".lstrip("/")) for name in names]
        rows = pyarrow.compute.index_in(pyarrow.array(paths, pyarrow.binary()), self.names)
        return None if rows.null_count else rows.to_numpy()

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        """Returns the content of a file by its path."""
        index, name = self.position(path), path.strip("/")
        if index == len(self.names) or self._name(index) != name:
            raise FileNotFoundError(f"{name} is not in {self.folder}")
        return self.content(index)[start:end]

    def content(self, row: int) -> bytes:
        """Returns the content of a file, or raises `OSError` if its checksum is wrong."""
        start, length = int(self.offsets[row]), int(self.lengths[row])
        shard = self.shard(int(self.shard_numbers[row]))
        if isinstance(self.shards, LocalFileSystem) and hasattr(os, "pread"):  # not on Windows
            file = self.open_local(shard)  # a reference, without which it may be closed below
            record = os.pread(file.fileno(), length + FOOTER_SIZE, start)
        else:
            record = self.shards.cat_file(shard, start=start, end=start + length + FOOTER_SIZE)
        if record[length:] != masked_crc(content := record[:length]):
            raise OSError(errno.EIO, f"the checksum of {self._name(row)} is wrong in {shard}")
        return content

    def _open(self, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        if mode != "rb":
            raise OSError(errno.EROFS, "Packed shards are read-only", path)
        return io.BytesIO(self.cat_file(path))

    def _name(self, index: int) -> str:
        return os.fsdecode(self.names[index].as_py())

    def _file_info(self, index: int) -> dict[str, Any]:
        return {
            "name": self._name(index),
            "type": "file",
            "size": int(self.lengths[index]),
            "image": bool(self.images[index]),
            "mtime": self.modified,
        }


class PackedPath(UPath):
    """Path of a file or folder in packed shards."""

    def __str__(self) -> str:
        try:
            path = self.path.strip("/")
        except NotImplementedError:  # for a relative path
            return super().__str__()
        return f"{self.storage_options['folder']}/{path}".rstrip("/")


def root(folder: str) -> UPath:
    """Returns the path of the root of packed shards in a folder, local or a URL."""
    return UPath("/", protocol="packed", folder=folder)


# Runs whenever the module is imported, also when a path is unpickled in another process.
fsspec.register_implementation("packed", PackedFileSystem, clobber=True)
registry.register_implementation("packed", PackedPath, clobber=True)


def shard_name(number: int) -> str:
    """Returns the file name of a shard."""
    return f"files-{number:05d}.tfrecord"


def record(content: bytes) -> bytes:
    """Returns a record of a TFRecord file that contains `content`."""
    length = len(content).to_bytes(8, "little")
    return length + masked_crc(length) + content + masked_crc(content)
