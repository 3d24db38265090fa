from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_vit.output_folder
from keras_vit.output_folder import MARKER, is_output, require_new_run, require_writable, writing

# The module alone: the package takes seconds to import.
HOLDER = """
import sys, time, types
root = types.ModuleType("keras_vit")
root.__path__ = [sys.argv[1]]
sys.modules["keras_vit"] = root
from keras_vit.output_folder import writing

with writing(sys.argv[2], "train"):
    print("locked", flush=True)
    time.sleep(60)
"""

RACER = """
import os, sys, time, types
root = types.ModuleType("keras_vit")
root.__path__ = [sys.argv[1]]
sys.modules["keras_vit"] = root
from keras_vit.output_folder import writing

print("ready", flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.0005)
try:
    with writing(sys.argv[2], "train"):
        print("won", flush=True)
        sys.stdin.readline()
except ValueError as error:
    print(error)
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Another process that writes to a folder."""
    package = Path(keras_vit.output_folder.__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(package), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_writing_refuses_a_folder_in_use_and_names_its_holder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold(folder) as process:
        message = rf"must not be in use.*`keras-vit train`, process {process.pid} on .* since 20"
        with pytest.raises(ValueError, match=message), writing(folder, "train"):
            pass
        process.kill()
    with writing(folder, "export"):
        assert json.loads((folder / MARKER).read_text())["process"] == os.getpid()


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_finished_folder_does_not_name_its_writer(
    tmp_path: Path, error: type[KeyError] | None
) -> None:
    folder = tmp_path / "report"
    for _ in range(2):
        with contextlib.suppress(KeyError), writing(folder, "evaluate"):
            (folder / "report.json").touch()
            assert platform.node() in (folder / MARKER).read_text()
            if error:
                raise error
        assert (folder / MARKER).read_bytes() == b""
        assert is_output(folder)


@pytest.mark.slow
def test_of_processes_that_start_at_once_one_wins(tmp_path: Path) -> None:
    package = Path(keras_vit.output_folder.__file__).parent
    for number in range(8):
        folder, start = tmp_path / f"run{number}", tmp_path / f"start{number}"
        command = [sys.executable, "-c", RACER, *map(str, (package, folder, start))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        racers = [subprocess.Popen(command, **pipes, text=True) for _ in range(4)]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        start.touch()
        said = sorted(racer.stdout.readline().strip() for racer in racers if racer.stdout)
        for racer in racers:  # the winner ends when all have answered
            racer.communicate()
        assert said.pop() == "won"
        assert all(re.search(r"not be in use.*`keras-vit train`, process", s) for s in said), said
        assert is_output(folder)


def test_a_folder_that_another_process_marks_meanwhile_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark_and_list(folder: Path) -> list[str]:
        for name in (MARKER, "split.csv"):  # as a process that takes the lock now
            (folder / name).touch()
        return listdir(folder)

    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", mark_and_list)
    require_writable(tmp_path)


def test_writing_marks_a_new_folder_first(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):  # a start that failed can be repeated
        with writing(folder, "train"):
            assert is_output(folder)
            (folder / "split.csv").touch()


def test_writing_overwrites_nothing_that_it_did_not_create(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("mine")
    with (
        pytest.raises(
            ValueError,
            match=r"a folder created by keras-vit; other folders .*which contains labels.txt",
        ),
        writing(tmp_path, "train"),
    ):
        pass
    with writing(tmp_path, "evaluate", ("evaluation.json",)):
        pass
    assert not is_output(tmp_path)  # a folder of the user is not marked
    (tmp_path / "evaluation.json").write_text("mine")
    with pytest.raises(ValueError, match=r"which contains evaluation\.json"):
        require_writable(tmp_path, ("evaluation.json",))
    assert (tmp_path / "evaluation.json").read_text() == "mine"


def test_require_writable_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ValueError, match=r"`out` must be a folder.*which is a file"):
        require_writable(tmp_path / "run")


def test_first_fold_of_a_new_run_must_not_be_a_run(tmp_path: Path) -> None:
    (tmp_path / "fold_1").mkdir()
    require_new_run(tmp_path)
    (tmp_path / "notes").touch()
    with pytest.raises(ValueError, match=r"other folders are not overwritten.*contains notes$"):
        require_new_run(tmp_path)
    (tmp_path / "fold_1" / "config.yaml").touch()
    with pytest.raises(ValueError, match=r"`out` must be a new folder.*which contains a run\."):
        require_new_run(tmp_path)


def test_writing_removes_a_new_folder_if_nothing_was_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with pytest.raises(KeyError), writing(tmp_path / name, "train"):
            raise KeyError
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    with pytest.raises(KeyError), writing(tmp_path / "kept", "train"):
        raise KeyError((tmp_path / "kept" / "split.csv").touch())
    assert is_output(tmp_path / "kept")


@pytest.mark.parametrize("name", [MARKER, "evaluation.json"])
def test_writing_follows_no_links(name: str, tmp_path: Path) -> None:
    with writing(tmp_path / "run", "train"):
        (tmp_path / "run" / "split.csv").touch()
    (tmp_path / "notes").write_text("of the user")
    for target in ("notes", "nothing"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / target)
        with (
            pytest.raises(ValueError, match="`out` must not contain links"),
            writing(tmp_path / "run", "evaluate", ("evaluation.json",)),
        ):
            pass
    assert (tmp_path / "notes").read_text() == "of the user"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("names", keras_vit.output_folder._UNMARKED)
def test_is_output_recognizes_folders_without_a_marker(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    (tmp_path / names[0]).touch()
    assert not is_output(tmp_path)
    (tmp_path / names[1]).touch()
    assert is_output(tmp_path)


def test_writing_is_repeated_in_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for _ in range(2):
        with writing(tmp_path, "evaluate", ("evaluation.json", "iou.png")):
            (tmp_path / "evaluation.json").touch()
            (tmp_path / "iou.png").touch()
