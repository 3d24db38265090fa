from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from keras_vit.data.image_reading import Limits
from keras_vit.export import manifest
from keras_vit.export.compare_artifacts import ArtifactComparison
from keras_vit.preprocessing import Preprocessing

pytestmark = pytest.mark.tensorflow


def test_both_folders_get_the_facts_and_the_hashes_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "saved_model/variables").mkdir(parents=True)
    (tmp_path / "saved_model/variables/a").write_bytes(b"abc")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/m.tflite").write_bytes(b"")
    result = ArtifactComparison("int8", 3, {"1": 2.0}, 0.5, 0.0, float("nan"), worst=0, ok=False)
    manifest.write(
        tmp_path, Preprocessing(size=8), Limits(), [result], images=7, name="vit", version=3
    )
    places = ("saved_model/assets.extra", "files")
    served, others = (
        json.loads((tmp_path / place / manifest.MANIFEST).read_text()) for place in places
    )
    digest = hashlib.sha256(b"abc").hexdigest()
    assert served.pop("files") == {"variables/a": {"bytes": 3, "sha256": digest}}
    assert list(others.pop("files")) == ["m.tflite"]
    assert served == others
    assert (served["name"], served["version"]) == ("vit", 3)
    assert served["limits"]["max_bytes"] == Limits().max_bytes
    assert served["verification"]["images"] == 7
    assert served["verification"]["artefacts"][0]["largest_difference"] is None  # not NaN


def test_folder_without_files_gets_no_manifest(tmp_path: Path) -> None:
    for folder in ("saved_model", "files"):
        (tmp_path / folder).mkdir()
    (tmp_path / "saved_model/a").touch()
    manifest.write(tmp_path, Preprocessing(size=8), Limits(), [], images=0)
    assert not list((tmp_path / "files").iterdir())
