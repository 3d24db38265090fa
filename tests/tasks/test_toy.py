"""The way of a task of another package, from the command line, without a line about it here."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.export import load_predictor
from tests.cli.commands import call_main
from tests.cli.conftest import Call
from tests.cli.conftest import call as call
from tests.cli.conftest import nano as nano
from tests.cli.conftest import photos as photos

# The task with masks as targets goes most of the same way in test_dense_toy.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

TOY = Path(__file__).with_name("toy")


@pytest.fixture(scope="module", autouse=True)
def installed(nano: None) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOY)
        yield


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toy") / "run"
    train = ("train", "--task", "patch_color", "--data", photos, "--model", "ViTNano")
    options = ("--epochs", 3, "--batch-size", 4, "--lr", "0.01", "--set", "warmup_steps=0")
    assert call_main(*train, *options, "--out", out) == 0
    return out


def errors(run: Path) -> list[str]:
    return [row["val_error"] for row in csv.DictReader((run / "history.csv").open())]


def test_task_learns_and_is_named(run: Path) -> None:
    found = [float(error) for error in errors(run)]
    assert found[-1] < found[0] / 2
    assert (run / "best.keras").is_file()
    assert "error" in json.loads((run / "evaluation.json").read_text())
    assert load_predictor(run).task.name == "patch_color"


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        raise KeyboardInterrupt


def test_resumed_run_is_the_undisturbed_one(run: Path, call: Call, tmp_path: Path) -> None:
    config = training.read_config(run / "config.yaml")
    with pytest.raises(KeyboardInterrupt):
        training.train(config, tmp_path / "again", callbacks=[Stop()])
    assert call("train", "--resume", "--out", tmp_path / "again")[0] == 0
    assert errors(tmp_path / "again") == errors(run)
    weights = [training.Run(path).model().get_weights() for path in (run, tmp_path / "again")]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_evaluation_has_a_page(run: Path, call: Call, tmp_path: Path) -> None:
    code, text, _ = call("evaluate", run, "--report", tmp_path)
    assert code == 0
    assert "mean absolute error" in text
    page = (tmp_path / "index.html").read_text()
    assert "mean absolute error" in page
    assert json.loads((tmp_path / "report.json").read_text())["scores"]["num_examples"] > 0


def test_exported_files_agree_and_predict(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    code, text, message = call("export", run, "--to", tmp_path, "--tflite", "dynamic_range")
    assert code == 0, message
    assert "REFUSED" not in text
    written = tmp_path / "vit-files" / "1"
    image = min(photos.glob("ant/*"))
    artifacts = (run, tmp_path / "vit", written / "dynamic_range.tflite")
    answers = [call("predict", artifact, image) for artifact in artifacts]
    assert {code for code, *_ in answers} == {0}
    assert answers[0][1] == answers[1][1]
    assert "mean color #" in answers[0][1]
    code, text, _ = call("predict", run, TOY / "patch_color.py")
    assert code == 1
    assert "The image" in text


def test_table_has_the_predictions_as_text(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    table = tmp_path / "colors.csv"
    assert call("predict", run, photos, "--to", table)[0] == 0
    rows = list(csv.DictReader(table.open()))
    assert rows
    assert all(row["prediction"].startswith("mean color #") for row in rows)
