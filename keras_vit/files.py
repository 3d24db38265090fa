"""Writing files so that an interruption or a full disk never costs an earlier one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path` that takes its place on success.

    Whatever was at `path` stays until the new content is complete and on disk; if the block
    raises (a full disk, Ctrl-C), the temporary file or folder is removed and the old one is
    untouched. Keras opens files in place, so a kill while saving destroys the earlier file. The
    new file has the permissions of the earlier one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        temporary = folder / path.name
        yield temporary
        for written in _files(temporary):
            with written.open("rb") as file:
                os.fsync(file.fileno())
        with contextlib.suppress(OSError):  # there is none, or the disk knows no permissions
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Writes `content` as indented JSON, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (child for child in path.rglob("*") if child.is_file())
    else:
        yield path
