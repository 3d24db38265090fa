from __future__ import annotations

import errno
import re
from pathlib import Path

import numpy as np
import pytest

from keras_vit.runs.state_files import Progress, StateFiles

ARRAYS = {"model/0": np.arange(6.0).reshape(2, 3), "optimizer/0": np.array(7)}


def test_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    progress = Progress(3, 5, 7, ({"epoch": 0.0, "loss": 1.5}, {"epoch": 1.0, "loss": 0.5}))
    checkpoints = StateFiles(tmp_path / "states")
    checkpoints.save(35, progress, ARRAYS)
    found, arrays = checkpoints.load()
    assert found == progress
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_state_of_a_run_without_validation_comes_back(tmp_path: Path) -> None:
    StateFiles(tmp_path).save(0, Progress(), ARRAYS)
    assert StateFiles(tmp_path).load()[0] == Progress()


def test_state_of_an_earlier_version_with_the_best_result_loads(tmp_path: Path) -> None:
    text = '{"epoch": 1, "step": 2, "steps": 3, "best": 0.7, "history": [{"val_accuracy": 0.7}]}'
    np.savez(tmp_path / "step_000000005.npz", progress=np.array(text), **ARRAYS)
    assert StateFiles(tmp_path).load()[0] == Progress(1, 2, 3, ({"val_accuracy": 0.7},))


def test_newest_states_are_kept(tmp_path: Path) -> None:
    checkpoints = StateFiles(tmp_path, keep=3)
    for updates in (2, 9, 10, 100, 11):
        checkpoints.save(updates, Progress(step=updates), ARRAYS)
    names = [path.name for path in checkpoints.paths()]
    assert names == ["step_000000100.npz", "step_000000011.npz", "step_000000010.npz"]
    assert checkpoints.load()[0].step == 100


@pytest.mark.parametrize("damage", ["cut", "empty", "wrong byte"])
def test_damaged_state_gives_way_to_the_one_before(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = StateFiles(tmp_path)
    checkpoints.save(1, Progress(step=1), ARRAYS)
    checkpoints.save(2, Progress(step=2), ARRAYS)
    newest = checkpoints.paths()[0]
    content = newest.read_bytes()
    middle = content.index(np.arange(6.0).tobytes()) + 3
    wrong = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    newest.write_bytes({"cut": content[:-40], "empty": b"", "wrong byte": wrong}[damage])
    assert checkpoints.load()[0].step == 1
    assert re.match(
        r"Skipped damaged step_0+2\.npz: .*; resuming from step_0+1\.npz\.",
        capsys.readouterr().out,
    )


def test_what_an_interruption_left_is_removed(tmp_path: Path) -> None:
    checkpoints = StateFiles(tmp_path)
    checkpoints.save(1, Progress(step=1), ARRAYS)
    leftover = tmp_path / ".step_000000002.npz.abc"
    leftover.mkdir()
    (leftover / "step_000000002.npz").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("the user's")
    assert checkpoints.load()[0].step == 1
    assert {path.name for path in tmp_path.iterdir()} == {"step_000000001.npz", "notes.txt"}


@pytest.mark.parametrize("content", [None, b"nothing"])
def test_no_whole_state_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    if content:
        (tmp_path / "step_000000001.npz").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"must contain a complete saved state of this run..*Received: "
    ):
        StateFiles(tmp_path).load()


def test_full_disk_leaves_the_states_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = StateFiles(tmp_path)
    for updates in (1, 2):
        checkpoints.save(updates, Progress(step=updates), ARRAYS)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(3, Progress(step=3), ARRAYS)
    monkeypatch.undo()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step_000000001.npz", "step_000000002.npz"
    ]  # fmt: skip
    assert checkpoints.load()[0].step == 2
