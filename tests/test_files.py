from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_vit.files import asset, atomic_path, read_file, read_object, write_json, write_text


def content(folder: Path) -> dict[str, str]:
    """Everything in a folder, hidden files included."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_atomic_path_writes_and_replaces(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with atomic_path(tmp_path / "a.weights.h5") as temporary:
            assert temporary.name == "a.weights.h5"  # Keras looks at suffixes
            temporary.write_text(text)
        assert content(tmp_path) == {"a.weights.h5": text}


def test_atomic_path_creates_the_folder(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "b" / "c" / "a.txt") as temporary:
        temporary.write_text("x")
    assert content(tmp_path) == {"b/c/a.txt": "x"}


def test_atomic_path_takes_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_path("a.txt") as temporary:
        temporary.write_text("x")
    assert content(tmp_path) == {"a.txt": "x"}


def test_atomic_path_writes_a_folder(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "1") as temporary:
        (temporary / "variables").mkdir(parents=True)
        (temporary / "variables" / "data").write_text("x")
        (temporary / "saved_model.pb").write_text("y")
        assert not (tmp_path / "1").exists()
    assert content(tmp_path) == {"1/variables/data": "x", "1/saved_model.pb": "y"}


def write_and_fail(path: Path, error: BaseException | None = None) -> None:
    with atomic_path(path) as temporary:
        if error is None:
            temporary.symlink_to("/dev/full")  # fails as a full disk does
            temporary.write_text("x" * 100_000)
        else:
            temporary.write_text("half")
            raise error


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), None], ids=repr)
def test_atomic_path_keeps_the_earlier_file(error: BaseException | None, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("precious")
    if error is None and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(type(error) if error else OSError, match=None if error else "No space left"):
        write_and_fail(tmp_path / "a.txt", error)
    assert content(tmp_path) == {"a.txt": "precious"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    RuntimeError("x.pb; No space left on device"),
)


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_full_disk_names_the_file(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as found:
        write_and_fail(tmp_path / "a.txt", error)
    assert (found.value.errno, found.value.filename) == (errno.ENOSPC, str(tmp_path / "a.txt"))
    assert not list(tmp_path.iterdir())


def test_atomic_path_without_a_file_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("precious")
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.txt"):
        pass
    assert content(tmp_path) == {"a.txt": "precious"}


def test_atomic_path_never_replaces_a_full_folder(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "a.txt").write_text("precious")
    target = atomic_path(tmp_path / "1")
    temporary = target.__enter__()
    temporary.mkdir()
    (temporary / "b.txt").write_text("x")
    with pytest.raises(OSError, match="not empty"):
        target.__exit__(None, None, None)
    assert content(tmp_path) == {"1/a.txt": "precious"}


KILLED = """
import sys, time
from keras_vit.files import atomic_path

with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_atomic_path_survives_a_kill(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("precious")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert target.read_text() == "precious"


def test_atomic_path_gives_files_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").touch()
    with atomic_path(tmp_path / "a.txt") as temporary:
        temporary.touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_atomic_path_keeps_the_permissions_of_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for mode in (0o664, 0o640):
        path.touch()
        path.chmod(mode)
        with atomic_path(path) as temporary:
            temporary.write_text("x")
        assert path.stat().st_mode & 0o777 == mode


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with atomic_path(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_write_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"epochs": 3, "labels": ["Gänseblümchen"]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert text.startswith('{\n  "epochs": 3')
    assert text.endswith("}\n")
    assert json.loads(text) == {"epochs": 3, "labels": ["Gänseblümchen"]}
    write_json(tmp_path / "b.json", {"r2": float("nan"), "loss": [float("inf"), 0.5]})
    assert json.loads((tmp_path / "b.json").read_text()) == {"r2": None, "loss": [None, 0.5]}


@pytest.mark.parametrize(
    ("content", "found"),
    [('{"a": 1}', {"a": 1}), ("[1]", {}), ('{"a"', {}), ("[" * 100_000, {}), (b"\xff", {})],
)
def test_read_object_takes_other_content_for_none(
    content: str | bytes, found: dict[str, int], tmp_path: Path
) -> None:
    assert read_object(tmp_path / "a.json") == {}
    content = content.encode() if isinstance(content, str) else content
    (tmp_path / "a.json").write_bytes(content)
    assert read_object(tmp_path / "a.json") == found


def test_write_text_keeps_the_earlier_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "Gänseblümchen")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "\udcff")
    assert (tmp_path / "a.txt").read_bytes() == "Gänseblümchen".encode()
    write_text(tmp_path / "a.txt", "\udcff", errors="backslashreplace")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["\\udcff"]


def test_write_json_keeps_the_earlier_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(tmp_path / "a.json", {"x": object()})
    assert content(tmp_path) == {"a.json": "1\n"}


def test_devices_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="A device or pipe cannot be replaced"):
        write_json(tmp_path / "pipe", {})
    assert (tmp_path / "pipe").is_fifo()


def test_read_file_refuses_a_huge_one(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").touch()
    os.truncate(tmp_path / "x.jpg", 50 * 10**9)  # sparse
    with pytest.raises(OSError, match="File too large"):
        read_file("paths", tmp_path / "x.jpg")


def test_asset_is_text_of_the_package() -> None:
    assert asset("weights.csv").startswith("model,")
