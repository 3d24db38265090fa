from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from keras_vit import data, training
from keras_vit.reports import write_label_errors
from tests.cli.commands import Call
from tests.cli.conftest import call as call
from tests.training.conftest import nano as nano
from tests.training.photos import write_colors

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
    shutil.rmtree(tmp_path / "folds" / "fold_2" / "samples")
    (tmp_path / "folds" / "folds.json").unlink()
    with pytest.raises(ValueError, match="`folds` must be a complete folder of `keras-vit train"):
        write_label_errors(tmp_path / "folds", tmp_path / "labels")
