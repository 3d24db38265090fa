"""`keras-vit classes add`; tests/export/test_add_class.py adds a class to an exported model."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import Call, check_failure


def test_models_exported_without_prototypes_are_refused(
    call: Call, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "serving").mkdir()
    code, _, message = call("classes", "add", tmp_path / "serving", "tulip", photos)
    check_failure(code, message, "`source` must be a model exported with `prototypes`")
    code, _, message = call("classes", "add", tmp_path / "missing", "tulip", photos)
    check_failure(code, message, "must be a folder of `keras-vit export --prototypes`")
