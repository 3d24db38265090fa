from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from scipy import stats

from keras_vit import training
from keras_vit.reports.drift import Change, Drift, _change, write_drift
from keras_vit.storage.packing import pack
from tests.cli.commands import Call
from tests.cli.conftest import call as call
from tests.training.conftest import nano as nano
from tests.training.photos import write_colors


def test_interval_is_that_of_welchs_test() -> None:
    old, new = np.array([1.0, 2, 3, 4]), np.array([2.0, 4, 9])
    found = _change("size", old, new, rows=1)
    # Variances of the means 5/12 and 13/3, so that the degrees of freedom are 2.387.
    assert (found.before, found.after) == (2.5, 5)
    half = np.sqrt(5 / 12 + 13 / 3) * stats.t.ppf(0.975, (57 / 12) ** 2 / (25 / 432 + 169 / 18))
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half))
    assert not found.is_different
    assert not _change("size", np.ones(3), np.ones(2), rows=1).is_different
    wide = _change("size", old, new, rows=10)
    assert wide.low < found.low
    assert _change("size", old + 100, new, rows=10).is_different


def test_intervals_of_fractions_are_those_of_newcombe() -> None:
    old, new = np.arange(100) < 50, np.zeros(2, bool)
    found = _change("predicted as red", old, new, rows=1)
    # Exact intervals: 0.3983 to 0.6017 of 50 in 100, 0 to 1 - 0.025 ** (1 / 2) of 0 in 2.
    high = np.hypot(1 - np.sqrt(0.025), 0.5 - 0.39832) - 0.5
    assert (found.low, found.high) == pytest.approx((-0.60168, high), abs=1e-5)
    assert not found.is_different
    assert _change("predicted as red", old, np.zeros(50, bool), rows=10).is_different


@pytest.mark.parametrize(
    ("classes", "images"),
    [(2, 2), (10, 10), (30, 10)],  # measured: 0; with Welch's intervals: 0.48, 1, 1
)
def test_few_images_without_drift_are_not_different(classes: int, images: int) -> None:
    generator, wrong = np.random.default_rng(0), 0
    for _ in range(50):
        old, new = (generator.integers(0, classes, number) for number in (500, images))
        changes = [_change("", old == k, new == k, rows=classes + 8) for k in range(classes)]
        wrong += any(change.is_different for change in changes)
    assert wrong <= 2


def test_text_marks_what_is_different() -> None:
    changes = (Change("confidence", 0.9, 0.6, -0.4, -0.2), Change("contrast", 0.2, 0.2, -0.1, 0.1))
    lines = Drift(changes, 50, ()).text().splitlines()
    assert [line.endswith("different") for line in lines] == [False, True, False]


@pytest.mark.tensorflow
def test_dark_images_are_different(nano: str, tmp_path: Path, call: Call) -> None:
    photos = write_colors(tmp_path / "photos")
    recipe = training.recipe("probe").replace(image_size=(8, 8), precision="float32")
    config = training.RunConfig(str(photos), nano, recipe=recipe)
    training.train(config, tmp_path / "run", tensorboard=False)
    new = tmp_path / "new"
    new.mkdir()
    for path in photos.rglob("*.png"):
        PIL.Image.open(path).point(lambda value: value // 3).save(new / path.name)
    (new / "broken.png").write_bytes(b"no image")
    code, output, _ = call("drift", tmp_path / "run", new, "--out", tmp_path / "drift")
    assert code == 0
    assert output.endswith("index.html (25 images, 1 of which cannot be read)\n")
    stored = json.loads((tmp_path / "drift" / "drift.json").read_text())
    assert (stored["images"], len(stored["unreadable"])) == (24, 1)
    rows = {row["name"]: row for row in stored["changes"]}
    assert rows["brightness"]["different"]
    assert rows["brightness"]["after"] == pytest.approx(rows["brightness"]["before"] / 3, rel=0.1)
    assert not rows["width / height"]["different"]
    assert rows["predicted as red"]["after"] + rows["predicted as blue"]["after"] == 1
    pack(new, tmp_path / "packed", processes=1, progress=False)
    assert call("drift", tmp_path / "run", tmp_path / "packed", "--out", tmp_path / "again")[0] == 0
    packed = json.loads((tmp_path / "again" / "drift.json").read_text())
    assert packed["changes"] == stored["changes"]
    assert [name.rpartition("/")[2] for name in packed["unreadable"]] == ["broken.png"]
    page = (tmp_path / "drift" / "index.html").read_text()
    assert page.count("<figure>") == 24
    with pytest.raises(ValueError, match="`images` must contain two readable images or more"):
        write_drift(tmp_path / "run", [new / "broken.png"], tmp_path / "other")
    turned, exif = tmp_path / "turned.jpg", PIL.Image.Exif()
    exif[0x0112] = 6
    PIL.Image.new("RGB", (12, 9)).save(turned, exif=exif)
    changes = write_drift(tmp_path / "run", [turned, turned], tmp_path / "other").changes
    assert next(c for c in changes if c.name == "width / height").after == 0.75  # as it is shown
