from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from keras_vit.export import manifest

pytestmark = pytest.mark.tensorflow


def test_both_folders_get_the_facts_and_the_hashes_of_their_files(tmp_path: Path) -> None:
    served, others = tmp_path / "saved_model", tmp_path / "files"
    (served / "variables").mkdir(parents=True)
    (served / "variables/a").write_bytes(b"abc")
    others.mkdir()
    (others / "m.tflite").write_bytes(b"")
    manifest.write_manifests(served, others, {"name": "vit", "version": 3})
    places = (served / "assets.extra", others)
    first, second = (json.loads((place / manifest.MANIFEST).read_text()) for place in places)
    digest = hashlib.sha256(b"abc").hexdigest()
    assert first.pop("files") == {"variables/a": {"bytes": 3, "sha256": digest}}
    assert list(second.pop("files")) == ["m.tflite"]
    assert first == second == {"name": "vit", "version": 3}


def test_folder_without_files_gets_no_manifest(tmp_path: Path) -> None:
    for folder in ("saved_model", "files"):
        (tmp_path / folder).mkdir()
    (tmp_path / "saved_model/a").touch()
    manifest.write_manifests(tmp_path / "saved_model", tmp_path / "files", {})
    assert not list((tmp_path / "files").iterdir())
