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
