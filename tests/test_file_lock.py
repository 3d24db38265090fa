from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

import keras_vit.file_lock
from keras_vit.file_lock import file_lock

# The module alone: the package takes seconds to import.
HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from file_lock import file_lock

with file_lock(sys.argv[2], "waiting"):
    print("locked", flush=True)
    time.sleep(60)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    folder = Path(keras_vit.file_lock.__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_file_lock_dies_with_its_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".lock"
    entered = threading.Event()

    def enter() -> None:
        with file_lock(path, "waiting for another one"):
            entered.set()

    with hold(path) as process:
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.5)
        process.kill()
    assert entered.wait(5)
    thread.join()
    assert capfd.readouterr().err == "waiting for another one\n"  # once


def test_file_lock_keeps_threads_apart(tmp_path: Path) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        with file_lock(tmp_path / ".lock", "waiting"):
            inside += 1
            most = max(most, inside)
            threading.Event().wait(0.02)
            inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_file_lock_is_silent_and_free_again_after_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), file_lock(tmp_path / ".lock", "waiting"):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_file_lock_is_free_again_although_a_child_inherited_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl", reason="tests the lock of POSIX")
    flock, copies = fcntl.flock, []

    def fork(file: BinaryIO, operation: int) -> None:
        copies.append(os.dup(file.fileno()))  # what a forked child would have
        flock(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fork)
        with file_lock(tmp_path / ".lock", "waiting"):
            pass
    with (tmp_path / ".lock").open() as file:
        flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for copy in copies:
        os.close(copy)


def test_file_lock_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="tests the lock of POSIX")

    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="not implemented"), file_lock(tmp_path / ".lock", "waiting"):
        pass


def test_file_lock_needs_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), file_lock(tmp_path / "a" / ".lock", "waiting"):
        pass
