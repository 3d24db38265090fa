from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keras_vit.export import (
    KerasPredictor,
    SavedModelPredictor,
    TFLitePredictor,
    load_predictor,
)
from tests.export.conftest import LABELS

pytestmark = pytest.mark.tensorflow


def test_load_predictor_takes_every_artefact(exported: dict[str, Path]) -> None:
    version = exported["saved_model"]
    for path, kind, name in (
        (exported["keras"], KerasPredictor, exported["keras"]),
        (exported["tflite"], TFLitePredictor, exported["tflite"]),
        (version, SavedModelPredictor, version),
        (str(version.parent), SavedModelPredictor, version),
    ):
        predictor = load_predictor(path)
        assert type(predictor) is kind
        assert predictor.labels == LABELS
        assert predictor.name == str(name)


def test_load_predictor_takes_the_last_epoch_of_a_run(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(exported["keras"], tmp_path / "last.keras")
    (tmp_path / "best.keras").write_bytes(b"")
    assert load_predictor(tmp_path).name == str(tmp_path / "last.keras")


def test_load_predictor_takes_the_newest_complete_version(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    for number in ("9", "10"):
        shutil.copytree(exported["saved_model"], tmp_path / number)
    (tmp_path / "11").mkdir()
    assert load_predictor(tmp_path).name == str(tmp_path / "10")


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing.keras", "nothing there"), ("folder", "none of"), ("model.h5", "none of")],
)
def test_load_predictor_says_what_it_takes(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.h5").touch()
    with pytest.raises(
        ValueError, match=f"`path` must be a .keras file, a .tf.*{name}', {problem}"
    ):
        load_predictor(tmp_path / name)


def test_load_predictor_says_that_a_file_is_damaged(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(exported["keras"].read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"`path` must be a complete .keras file.*model.keras"):
        load_predictor(path)
