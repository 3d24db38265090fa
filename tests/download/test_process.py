"""Downloads that meet: what several processes, or threads, do at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from keras_vit.download.cache import fetch
from tests.bad_server import Loopback, Page

CONTENT = bytes(range(251)) * 1201
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "https://127.0.0.1:1/vit_models/Ti_16.npz"  # only a mirror has it

# Without Keras, whose progress bar is all that is used: it takes seconds to import.
FETCH = """
import sys, types
from unittest import mock

sys.modules["keras"] = mock.MagicMock()
sys.modules["keras_vit"] = types.ModuleType("keras_vit")
sys.modules["keras_vit"].__path__ = [sys.argv[1]]
from keras_vit.download.cache import fetch

print("ready", flush=True)
sys.stdin.readline()
print(fetch([sys.argv[2]], "Ti_16.npz", sha256=sys.argv[3]).path)
"""


def start(home: Path, mirror: str) -> subprocess.Popen[str]:
    """A process that is ready to fetch as soon as it reads a line."""
    environment = {
        **os.environ,
        "KERAS_HOME": str(home),
        "KERAS_VIT_MIRROR": mirror,
        "no_proxy": "127.0.0.1",
    }
    package = Path(__file__).parents[2] / "keras_vit"
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, str(package), URL, SHA256],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_fetch_from_four_processes_downloads_once(tmp_path: Path) -> None:
    with Loopback() as server:
        server.pages["/vit_models/Ti_16.npz"] = Page(CONTENT, pause=0.03)
        processes = [start(tmp_path, server.url()) for _ in range(4)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        output = [process.communicate(timeout=60) for process in processes]
    path = tmp_path / "models" / "keras_vit" / "Ti_16.npz"
    assert [out.splitlines()[-1] for out, _ in output] == [str(path)] * 4
    assert [asked.sent for asked in server.asked] == [len(CONTENT)]
    assert path.read_bytes() == CONTENT
    # A process that comes late finds the file and has nothing to wait for.
    assert {err.count("Waiting for another process") for _, err in output} <= {0, 1}
    assert not path.with_name("Ti_16.npz.part").exists()


def test_fetch_waits_for_another_one_and_takes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    folder, elsewhere = tmp_path / "models" / "keras_vit", tmp_path / "elsewhere"
    folder.mkdir(parents=True)
    (folder / "Ti_16.npz").write_bytes(CONTENT)
    fetched = [fetch([URL], "Ti_16.npz", size=len(CONTENT))]
    folder.rename(elsewhere)
    folder.mkdir()
    monkeypatch.delattr("keras_vit.download.cache.file_digests")  # it is not verified a second time
    thread = threading.Thread(target=lambda: fetched.append(fetch([URL], "Ti_16.npz")))
    with filelock.FileLock(folder / ".Ti_16.npz.lock"):
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        for name in ("Ti_16.npz", "Ti_16.npz.json"):
            (elsewhere / name).rename(folder / name)
    thread.join()
    assert fetched == [fetched[0]] * 2
    said = f"Waiting for another process that is downloading {folder / 'Ti_16.npz'} ...\n"
    assert capfd.readouterr().err == said
