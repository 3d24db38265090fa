"""Atomic writes of files and folders, and contents of JSON files."""

from __future__ import annotations

import contextlib
import csv
import errno
import importlib.resources
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_vit import arguments

_MAX_IMAGE_BYTES = 2**28  # bytes; 64 megapixels without compression are 192 MB


def asset(name: str) -> str:
    """Returns the text of a file that is part of this package, in its folder `assets`."""
    return importlib.resources.files("keras_vit").joinpath("assets", name).read_text("utf-8")


def read_file(name: str, path: str | os.PathLike[str]) -> bytes:
    """Returns the content of an image file, after a check of its kind and size."""
    arguments.regular_file(name, path)
    if os.path.getsize(path) > _MAX_IMAGE_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    return Path(path).read_bytes()


@contextlib.contextmanager
def naming_full_disk(path: str | os.PathLike[str]) -> Iterator[None]:
    """Converts a disk-full error of any library to an `OSError` with the path."""
    try:
        yield
    except Exception as error:
        message = os.strerror(errno.ENOSPC)
        if message not in str(error):
            raise
        raise OSError(errno.ENOSPC, message, os.fspath(path)) from error


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path` that replaces `path` on success.

    The earlier content of `path` stays until the new content is complete and on disk. If the block
    raises (a full disk, Ctrl-C), the temporary file or folder is removed and `path` is unchanged.
    Keras writes files in place, so a kill while saving destroys the earlier file. The new file has
    the permissions of the earlier file.
    """
    path = Path(os.path.realpath(path))  # a symbolic link stays one
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "A device or pipe cannot be replaced", str(path))
    with naming_full_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            temporary = folder / path.name
            yield temporary
            for written in (temporary, *temporary.rglob("*")):
                if written.is_file():
                    with written.open("rb") as file:
                        os.fsync(file.fileno())
            with contextlib.suppress(OSError):  # no earlier file, or no permissions on this disk
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def read_object(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file, empty if there is no file or it has other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Writes `content` as indented JSON, atomically, with null for NaN and infinity."""
    content = json.loads(json.dumps(content), parse_constant=lambda _: None)
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: str | os.PathLike[str], text: str, errors: str = "strict") -> None:
    """Writes `text` in UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def write_csv(
    path: str | os.PathLike[str], rows: Iterable[Iterable[Any]], errors: str = "strict"
) -> None:
    """Writes rows of cells, the first the header, as a CSV file in UTF-8, atomically."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors=errors) as file,
    ):
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a binary file, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copies a file, atomically."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object for `json.loads`; raises `ValueError` if a name occurs twice in it."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = arguments.shortlist([name for name, _ in pairs])
        raise ValueError(f"a name occurs twice among {names}")
    return content


def without_folders(value: Any) -> Any:
    """Shortens all absolute paths in a value to their last component, for privacy."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    if isinstance(value, str) and "\n" not in value and Path(value).is_absolute():
        return Path(value).name
    return value
