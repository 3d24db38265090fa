from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.cli.predict import _write
from keras_vit.tasks.segmentation.prediction import ShareTable
from tests.cli.conftest import Call

pytestmark = pytest.mark.tensorflow


def test_predict_writes_masks_and_shares(
    run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    code, _, _ = call(
        "predict", run, shapes / "images" / "3.png", tmp_path, "--to", tmp_path / "found.csv"
    )
    assert code == 1  # one cannot be read
    rows = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert float(rows[0]["ground"]) + float(rows[0]["shape"]) == pytest.approx(1)
    assert rows[1]["message"]
    truth = PIL.Image.open(shapes / "masks" / "3.png")
    mask = PIL.Image.open(tmp_path / "found" / "00001_3.png")
    assert (mask.size, mask.mode) == (truth.size, "P")
    seen = np.asarray(truth) != 255
    assert (np.asarray(mask) == np.asarray(truth))[seen].mean() > 0.8
    assert sorted(path.name for path in (tmp_path / "found").glob("0*")) == [
        "00001_3.png",
        "00001_3_overlay.jpg",
    ]


def test_pictures_are_not_written_into_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"must be a new folder, .* contains a.jpg"):
        _write(tmp_path / "photos.csv", ShareTable(["ground"]), [], iter(()))
