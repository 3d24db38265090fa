"""Paths of files on local disks, in object storage (s3://, gs://) and in packed shards."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_vit.arguments import URL_SCHEMES
from keras_vit.storage.errors import INDEX, reading
from keras_vit.storage.names import take

#: A `pathlib.Path`, or a path of universal-pathlib with the same methods.
AnyPath = Any


def is_local(path: AnyPath) -> bool:
    """Returns whether a path is one of the operating system."""
    return isinstance(path, (str, os.PathLike))


def is_packed(path: AnyPath) -> bool:
    """Returns whether a path is in packed shards."""
    return not is_local(path) and path.protocol == "packed"


def to_path(source: str | os.PathLike[str] | AnyPath) -> AnyPath:
    """Returns the path of a file or folder; for packed shards, the path of their root folder.

    Raises:
        ImportError: If the packages of the extra `cloud` are not installed.
        ValueError: If a URL cannot be read: no such bucket or folder, no permission or
            credentials, no connection.
    """
    if not is_local(source):
        return source
    if not str(source).startswith(URL_SCHEMES):
        local = Path(source).expanduser()
        return _packed_root(local) if (local / INDEX).is_file() else local
    from upath import UPath

    with reading(os.fspath(source)):
        path = UPath(os.fspath(source).rstrip("/"))
        path.fs.info(path.path)
        return _packed_root(path) if path.fs.exists(f"{path.path}/{INDEX}") else path


def _packed_root(folder: AnyPath) -> AnyPath:
    from keras_vit.storage.packed_files import root

    return root(str(folder))


def join_path(folder: AnyPath, *names: str) -> AnyPath:
    """Returns the path of a file or folder in `folder`, without `.` and `..`."""
    if is_local(folder):
        return Path(os.path.normpath(folder.joinpath(*names)))
    for part in "/".join(names).split("/"):
        if part not in ("", "."):
            folder = folder.parent if part == ".." else folder / part
    return folder


def names_below(folder: AnyPath) -> list[str]:
    """Returns the names of all files below a folder, relative to it, sorted."""
    if is_local(folder):
        files = (Path(parent, file) for parent, _, names in os.walk(folder) for file in names)
        return sorted(path.relative_to(folder).as_posix() for path in files)
    return sorted(infos_below(folder))


def infos_below(folder: AnyPath) -> dict[str, dict[str, Any]]:
    """Returns the `info` of each file below a folder that is not local, by relative name."""
    prefix = folder.path.strip("/") + "/" if folder.path.strip("/") else ""
    infos = folder.fs.find(folder.path, detail=True)
    names = {path: path.lstrip("/").removeprefix(prefix) for path in infos}
    # Without the empty objects that consoles create for folders.
    return {name: infos[path] for path, name in names.items() if name and name[-1] != "/"}


def as_array_value(path: AnyPath) -> Any:
    """Returns what an array stores of a path, for `to_path`: a string for a local file."""
    return str(path) if is_local(path) else path


class StoredFiles(Sequence[bytes]):
    """Contents of files in object storage or packed shards, read one at a time when used.

    Args:
        folder: The folder, not a local one.
        names: Name of each file, relative to the folder.
    """

    def __init__(self, folder: AnyPath, names: Sequence[str]) -> None:
        self.folder, self.names, self.source = folder, names, str(folder)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:
        path = f"{self.folder.path.rstrip('/')}/{self.names[index]}"
        try:
            return self.folder.fs.cat_file(path)
        except FileNotFoundError as error:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        except Exception as error:  # each client library has its own error classes
            raise OSError(errno.EIO, str(error), path) from error

    def read(self, index: int) -> bytes:
        """Returns the content of a file."""
        return self[index]

    def contents(self, indices: np.ndarray) -> np.ndarray:
        """Returns the contents of the files at `indices`, as an array of bytes objects."""
        if self._rows is None:
            return np.array([self[index] for index in indices], object)
        return np.array([self.folder.fs.content(row) for row in self._rows[indices]], object)

    @functools.cached_property
    def _rows(self) -> np.ndarray | None:
        """Row of each file in the index of packed shards; None for other files."""
        if not is_packed(self.folder):
            return None
        return self.folder.fs.rows(self.folder.path, self.names)

    def stamp(self, index: int) -> str:
        """Returns the size and the time of the last change of a file."""
        info = self.folder.fs.info(f"{self.folder.path.rstrip('/')}/{self.names[index]}")
        modified = (info[key] for key in ("mtime", "LastModified", "updated") if key in info)
        return f"{info['size']} {next(modified, '')}"

    def subset(self, indices: Any) -> StoredFiles:
        """Returns the files at `indices`, without reading them."""
        return StoredFiles(self.folder, take(self.names, indices))


class StoredFile(NamedTuple):
    """One file of `StoredFiles`, or of `keras_vit.data.Examples` in memory."""

    files: Any
    position: int

    def __str__(self) -> str:
        return f"{self.files.source}/{self.files.names[self.position]}"

    def read(self) -> bytes:
        """Returns the content of the file, or raises `OSError`."""
        return self.files.read(self.position)


def fields_of_paths(folder: AnyPath, paths: Sequence[AnyPath]) -> dict[str, Any]:
    """Returns the fields `names` (relative to a folder) and `paths` or `encoded` of `Examples`."""
    names = tuple(os.path.relpath(str(path), str(folder)) for path in paths)
    if is_local(folder):
        return {"names": names, "paths": tuple(map(str, paths))}
    return {"names": names, **fields_of_files(folder, names)}


def fields_of_files(folder: AnyPath, names: Sequence[str]) -> dict[str, Any]:
    """Returns the fields `paths` or `encoded` of `Examples`, for files of a folder."""
    if is_local(folder):
        return {"paths": tuple(str(folder / name) for name in names)}
    return {"encoded": StoredFiles(folder, names)}
