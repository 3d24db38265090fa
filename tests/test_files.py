from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from keras_vit import files


def test_atomic_path_replaces_a_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "labels.txt"
    for text in ("daisy", "rose"):
        with files.atomic_path(target) as temporary:
            assert temporary.name == target.name
            temporary.write_text(text)
        assert target.read_text() == text
    assert os.listdir(target.parent) == ["labels.txt"]


def test_atomic_path_keeps_the_earlier_file_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "labels.txt"
    target.write_text("daisy")

    def write() -> None:
        with files.atomic_path(target) as temporary:
            temporary.write_text("ro")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write()
    assert target.read_text() == "daisy"
    assert os.listdir(tmp_path) == ["labels.txt"]


def test_atomic_path_keeps_the_earlier_file_when_syncing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "labels.txt"
    target.write_text("daisy")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), files.atomic_path(target) as temporary:
        temporary.write_text("rose")
    assert target.read_text() == "daisy"


def test_atomic_path_writes_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "1"
    with files.atomic_path(target) as temporary:
        (temporary / "variables").mkdir(parents=True)
        (temporary / "variables" / "data").write_text("5")
        assert not target.exists()
    assert (target / "variables" / "data").read_text() == "5"


def test_write_json_round_trips(tmp_path: Path) -> None:
    content = {"epochs": 3, "labels": ["daisy", "Löwenzahn"], "weights": None}
    files.write_json(tmp_path / "config.json", content)
    assert json.loads((tmp_path / "config.json").read_text()) == content
