from __future__ import annotations

from pathlib import Path

import pytest

from keras_vit.cli.predict import _write
from keras_vit.tasks.segmentation.prediction import ShareTable

pytestmark = pytest.mark.tensorflow


def test_pictures_are_not_written_into_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"must be a new folder, .* contains a.jpg"):
        _write(tmp_path / "photos.csv", ShareTable(["ground"]), [], iter, {})
