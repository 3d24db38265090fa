"""A lock between processes, which the system itself releases when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

_PAUSE = 0.1  # seconds between two tries: Windows cannot wait for a lock without a limit

if sys.platform == "win32":
    import msvcrt

    def _take(file: BinaryIO) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            return False
        return True

    def _release(file: BinaryIO) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _take(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(file: BinaryIO) -> None:
        # Closing is not enough: a forked child would go on holding the lock.
        fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def file_lock(path: str | os.PathLike[str], waiting: str) -> Iterator[None]:
    """Keeps other processes and threads out of a block that they enter with the same path.

    Args:
        path: The file that carries the lock. It is created, stays empty, and stays: whoever
            deleted it could hold a lock on a file that others no longer see.
        waiting: What to say once on stderr if another one holds the lock.

    Raises:
        OSError: If the file cannot be created, or its file system has no locks.

    Example:
        >>> import tempfile
        >>> with file_lock(tempfile.mkdtemp() + "/.lock", "Another process is at work ..."):
        ...     print("alone")
        alone
    """
    with open(path, "ab") as file:
        if not _take(file):
            print(waiting, file=sys.stderr, flush=True)
            while not _take(file):
                time.sleep(_PAUSE)
        try:
            yield
        finally:
            _release(file)
