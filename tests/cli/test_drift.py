from __future__ import annotations

from pathlib import Path

from tests.cli.commands import Call


def test_folders_without_images_are_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "new").mkdir()
    code, _, message = call("drift", tmp_path / "run", tmp_path / "new")
    assert (code, "`SOURCE` must contain at least one image" in message) == (1, True)


def test_page_of_the_user_is_refused_before_work(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "index.html").touch()
    code, _, message = call("drift", tmp_path / "run", tmp_path, "--out", tmp_path)
    assert (code, "which contains index.html" in message) == (1, True)
