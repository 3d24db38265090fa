from __future__ import annotations

import json
from pathlib import Path

import pytest

from keras_vit.evaluation import real_accuracy


def name(number: int) -> str:
    return f"val/ILSVRC2012_val_{number:08d}.JPEG"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "real.json"
    path.write_text(json.dumps([[3], [7, 11], [], [999], [0]]))
    return path


def test_any_class_that_is_shown_is_right_and_images_without_do_not_count(file: Path) -> None:
    found = real_accuracy([name(k) for k in (2, 1, 3, 5)], [11, 4, 8, 0], file)
    assert (found.images, found.accuracy) == (3, pytest.approx(2 / 3))
    assert found.interval[0] < found.accuracy < found.interval[1]


@pytest.mark.parametrize("other", ["daisy/1.jpg", name(6), name(0)])
def test_images_have_to_be_of_the_validation_set(other: str, file: Path) -> None:
    with pytest.raises(ValueError, match=r"Every image must be named .*up to 5, to have"):
        real_accuracy([name(1), other], [3, 3], file)


def test_images_without_any_label(file: Path) -> None:
    with pytest.raises(ValueError, match="At least one image must have a reassessed label"):
        real_accuracy([name(3)], [3], file)


@pytest.mark.parametrize("text", ["{}", "[1, 2]", "[[1000]]", "[[-1]]", '[["a"]]', "no", ""])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "real.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"real\.json must (hold a list|be a readable JSON)"):
        real_accuracy([name(1)], [3], path)
    with pytest.raises(ValueError, match="must be a readable JSON file"):
        real_accuracy([name(1)], [3], tmp_path / "nowhere.json")
