"""Output folders of commands: marked by a file, and locked while being written."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_vit.files import write_json

MARKER = ".keras_vit_output"
_LOCK = ".keras_vit_lock"
# Files in output folders without a marker: of earlier versions, or with other files of the user.
_UNMARKED = (
    *(("config.yaml", name) for name in ("split.csv", "checkpoints", "last.keras")),
    *(("evaluation.json", f"{name}.png") for name in ("confusion_matrix", "label_scores")),
    *(("evaluation.json", f"{name}.png") for name in ("precision_recall", "iou", "scatter")),
    ("comparison.json", "runs"),
    *((name, "index.html") for name in ("report.json", "drift.json", "without.csv")),
    ("probe.json", "neighbors.png"),
)


def is_output(folder: Any) -> bool:
    """Returns whether a folder was created by a command of this package."""
    folder = Path(folder) if isinstance(folder, str) else folder
    if (folder / MARKER).is_file():
        return True
    return any((folder / a).is_file() and (folder / b).exists() for a, b in _UNMARKED)


def require_writable(folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> None:
    """Raises `ValueError` if writing to a folder could overwrite the user's files."""
    folder = Path(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"`out` must be a folder. Received: out={str(folder)!r}, which is a file")
    names = sorted(os.listdir(folder)) if names is None else names
    prefixes = (_LOCK, f".{MARKER}")  # also the temporary file of another process's marker
    files = [name for name in names if (folder / name).exists() and not name.startswith(prefixes)]
    # Checked after the listing: a process that starts meanwhile writes its marker first.
    if files and not is_output(folder):
        raise ValueError(
            "`out` must be a new folder, or a folder created by keras-vit; other folders are not "
            f"overwritten. Received: out={str(folder)!r}, which contains {', '.join(files[:5])}"
        )


def require_new_run(folder: str | os.PathLike[str]) -> None:
    """Raises `ValueError` if a folder already contains a run or the user's files."""
    folder = Path(folder)
    if any((folder / name / "config.yaml").exists() for name in ("", "fold_1")):
        raise ValueError(
            f"`out` must be a new folder. Received: out={str(folder)!r}, which contains a run. "
            "Choose another folder, or resume the run with `resume=True` (--resume)."
        )
    # A first fold that is no run yet begins again; `writing` checks its files.
    require_writable(folder, [path.name for path in folder.glob("*") if path.name != "fold_1"])


@contextlib.contextmanager
def writing(
    folder: str | os.PathLike[str], command: str, names: Sequence[str] | None = None
) -> Iterator[None]:
    """Locks a folder for writing by one process; adds the marker file to a new folder.

    The marker describes the process while it writes and is empty afterwards, since folders are
    shared. A new folder without any output is removed if the block raises.
    """
    folder = Path(folder)
    require_writable(folder, names)
    if links := [p for p in folder.glob("*") if p.is_symlink() and not p.is_dir()]:
        raise ValueError(
            "`out` must not contain links, through which other files could be overwritten. "
            f"Received: {links[0]}"
        )
    marker, created = folder / MARKER, not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / _LOCK, lambda: f"out={str(folder)!r}, in use by {_owner(marker)}"):
        new = not set(os.listdir(folder)) - {_LOCK}
        try:
            if new or marker.exists():
                started = time.strftime("%Y-%m-%d %H:%M:%S")
                owner = {"command": command, "process": os.getpid(), "host": platform.node()}
                write_json(marker, {**owner, "started": started})
            yield
        except BaseException:
            if new and not set(os.listdir(folder)) - {MARKER, _LOCK}:
                for name in (MARKER, _LOCK):
                    (folder / name).unlink(missing_ok=True)
                if created:
                    folder.rmdir()
            raise
        finally:
            if marker.exists():
                marker.write_bytes(b"")


def exclusive_lock(lock: Path, reason: Callable[[], str]) -> contextlib.AbstractContextManager[Any]:
    """Acquires a lock file; raises a `ValueError` that contains `reason` if it is locked."""
    import filelock

    try:
        return filelock.FileLock(lock).acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(
            "The output must not be in use by another process. Wait until the other process has "
            f"finished, or stop it. Received: {reason()}"
        ) from None


def _owner(marker: Path) -> str:
    for _ in range(20):  # until the process with the lock has written its marker
        with contextlib.suppress(OSError, ValueError, KeyError):
            owner = json.loads(marker.read_text(encoding="utf-8"))
            return (
                f"`keras-vit {owner['command']}`, process {owner['process']} on {owner['host']} "
                f"since {owner['started']}"
            )
        time.sleep(0.05)
    return "another process"
