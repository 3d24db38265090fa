from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_vit import data, files, training
from keras_vit.reports import write_label_errors, wrong_labels
from tests.cli.commands import Call
from tests.cli.conftest import call as call
from tests.training.conftest import nano as nano
from tests.training.photos import write_colors, write_photos

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_swapped_labels_are_found_and_corrected(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], call: Call
) -> None:
    photos = write_colors(tmp_path / "photos")
    before = sorted((path, path.read_bytes()) for path in photos.rglob("*.png"))
    recipe = training.recipe("probe").replace(image_size=(8, 8), precision="float32", batch_size=4)
    config = training.RunConfig(str(photos), nano, recipe=recipe, folds=3)
    training.train_folds(config, tmp_path / "folds", tensorboard=False)
    code, output, _ = call("data", "labels", tmp_path / "folds", "--out", tmp_path / "labels")
    assert code == 0
    assert output.endswith("labels.csv and without.csv (2 labels are likely wrong)\n")
    corrected = data.load(tmp_path / "labels" / "labels.csv")
    names = [Path(name).name for name in corrected.names]
    found = {name: corrected.shown(i) for i, name in enumerate(names)}
    assert found == {f"{i:02d}.png": (("red", "blue")[i % 2],) for i in range(24)}
    kept = data.load(tmp_path / "labels" / "without.csv")
    assert {Path(name).name for name in kept.names} == set(names) - {"00.png", "01.png"}
    with (tmp_path / "labels" / "labels.csv").open() as file:
        changed = [row for row in csv.DictReader(file) if row["label"] != row["given_label"]]
    assert [Path(row["file"]).name for row in changed] in (
        ["00.png", "01.png"],
        ["01.png", "00.png"],
    )
    page = (tmp_path / "labels" / "index.html").read_text()
    assert "2 of 24 images (8.3%) have a label that is likely wrong" in page
    assert page.count("<figure>") == 2
    assert sorted((path, path.read_bytes()) for path in photos.rglob("*.png")) == before
    labels = (tmp_path / "labels" / "labels.csv").read_text()
    (photos / "aaa").mkdir()  # before the other classes
    shutil.copy(photos / "red" / "02.png", photos / "aaa")
    assert write_label_errors(tmp_path / "folds", tmp_path / "labels") == 2
    assert (tmp_path / "labels" / "labels.csv").read_text() == labels
    shutil.rmtree(tmp_path / "folds" / "fold_2" / "samples")
    (tmp_path / "folds" / "folds.json").unlink()
    with pytest.raises(ValueError, match="`folds` must be a complete folder of `keras-vit train"):
        write_label_errors(tmp_path / "folds", tmp_path / "labels")


def test_classes_that_look_like_formulas_have_their_names(tmp_path: Path) -> None:
    examples = data.load(write_photos(tmp_path / "photos", {"-1": 3, "1": 5}))
    rows = wrong_labels._table(examples, np.full((8, 2), 0.5), {}, tmp_path)
    files.write_csv(tmp_path / "labels.csv", rows)
    assert data.load(tmp_path / "labels.csv").class_names == ("-1", "1")


def test_columns_of_the_table_are_kept(tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    for name in "abc":
        (scans / f"{name}.png").touch()
    (scans / "labels.csv").write_text(
        "file,label,patient,=camera,given_label\na.png,x,p1,-3,z\nb.png,y,p2,5,z\nc.png,x,p1,7,z\n"
    )
    examples = data.load(scans / "labels.csv")
    rows = wrong_labels._table(examples, np.full((3, 2), 0.5), {2: 1}, tmp_path)
    files.write_csv(tmp_path / "labels.csv", rows)
    corrected = data.load(tmp_path / "labels.csv")
    assert [corrected.shown(i) for i in range(3)] == [("x",), ("y",), ("y",)]
    assert corrected.columns == {
        "given_label": ("x", "y", "x"),
        "probability_of_given_label": ("0.5000",) * 3,
        "patient": ("p1", "p2", "p1"),
        "=camera": ("-3", "5", "7"),
    }


def test_paths_are_right_through_a_link_to_the_folder(tmp_path: Path) -> None:
    examples = data.load(write_photos(tmp_path / "photos", {"ant": 3, "bee": 5}))
    (tmp_path / "disk" / "deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "deeper")
    rows = wrong_labels._table(examples, np.full((8, 2), 0.5), {}, tmp_path / "link" / "labels")
    (tmp_path / "link" / "labels").mkdir()
    assert all((tmp_path / "link" / "labels" / row[0]).is_file() for row in rows[1:])
