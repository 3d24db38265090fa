from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.cli.predict import _write
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.segmentation.prediction import SegmentationPrediction, ShareTable

pytestmark = pytest.mark.tensorflow


def test_pictures_are_not_written_into_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"must be a new folder, .* contains a.jpg"):
        _write(tmp_path / "photos.csv", ShareTable(["ground"]), [], iter, {})


def test_pictures_are_not_written_into_a_run(tmp_path: Path) -> None:
    for name in ("config.yaml", "last.keras"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
    with pytest.raises(ValueError, match=r"run/ for its pictures contains other files"):
        _write(tmp_path / "run.csv", ShareTable(["ground"]), [], iter, {})


def test_pictures_of_images_with_long_names(tmp_path: Path) -> None:
    image = tmp_path / f"{'ü' * 125}.png"
    PIL.Image.new("RGB", (8, 8)).save(image)
    found = SegmentationPrediction(
        np.zeros((2, 2, 1), "f"), Preprocessing((8, 8), class_names=("a",))
    )
    ShareTable(["a"]).write_pictures(tmp_path / "found", 1, image, found)
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == [
        f"00001_{'ü' * 75}{end}" for end in (".png", "_overlay.jpg")
    ]


def test_borders_of_padded_images_have_no_share(tmp_path: Path) -> None:
    PIL.Image.new("RGB", (128, 64)).save(tmp_path / "a.png")
    preprocessing = Preprocessing((32, 32), resize="pad", class_names=("border", "image"))
    labels = np.zeros((8, 8), int)
    labels[2:6] = 1
    found = SegmentationPrediction(np.eye(2, dtype="float32")[labels], preprocessing)
    (row,) = ShareTable(["border", "image"]).rows(tmp_path / "a.png", found)
    expected = {"file": str(tmp_path / "a.png"), "border": 0.0, "image": 1.0, "message": None}
    assert row == expected
    assert found.shares == {"border": 0.5, "image": 0.5}
