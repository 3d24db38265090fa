from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from keras_vit import data
from keras_vit.data.inventory import Inventory
from keras_vit.data.splits import split_images
from keras_vit.runs.config import CommonConfig
from keras_vit.training import Run
from keras_vit.training.loop import find_parts
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", {"ant": 5, "bee": 7})


@pytest.fixture
def config(photos: Path) -> CommonConfig:
    return CommonConfig(str(photos), "ViTTi16", validation_fraction=0.3, split_seed=5)


def names(found: tuple[data.Examples, data.Examples, Inventory]) -> list[tuple[str, ...]]:
    return [part.names for part in found[:2]]


def test_parts_are_those_of_the_split_and_kept(
    config: CommonConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples, run = data.load(config.data), Run(tmp_path / "run")
    found = find_parts(config, examples, run, resume=False, writes=True)
    digests = data.audit(examples, progress=False).digests
    expected = data.split(examples, digests, validation_fraction=0.3, seed=5)
    assert names(found) == [examples.subset(part).names for part in expected]
    assert [len(part) for part in found[:2]] == [8, 4]
    assert capsys.readouterr().out == f"Checking the images of {config.data} ...\n"
    # A run that goes on keeps them, whatever is asked for now.
    again = dataclasses.replace(config, split_seed=6, validation_fraction=0.5)
    assert names(find_parts(again, examples, run, resume=True, writes=True)) == names(found)


def test_process_that_does_not_write_leaves_the_folder_alone(
    config: CommonConfig, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run")
    find_parts(config, data.load(config.data), run, resume=False, writes=False)
    assert not run.path.exists()


def test_images_without_classes_are_divided_another_way(
    config: CommonConfig, photos: Path, tmp_path: Path
) -> None:
    examples = data.load(config.data)
    examples = examples.subset(range(5))  # of one class, which `data.split` refuses
    run = Run(tmp_path / "run")
    with pytest.raises(ValueError, match="Training needs images of at least two classes"):
        find_parts(config, examples, run, resume=False, writes=True)
    found = find_parts(config, examples, run, resume=False, writes=True, split=split_images)
    assert [len(part) for part in found[:2]] == [3, 2]


@pytest.mark.slow
def test_bad_images_are_listed_or_left_out(
    config: CommonConfig, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "ant" / "notes.jpg").write_text("no picture")
    examples, run = data.load(config.data), Run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"ant/notes.jpg: not a JPEG"):
        find_parts(config, examples, run, resume=False, writes=True)
    config = dataclasses.replace(config, on_bad_image="skip")
    found = find_parts(config, examples, run, resume=False, writes=True)
    assert [len(part) for part in found[:2]] == [8, 4]
    assert "1 of 13 images cannot be used" in capsys.readouterr().out
