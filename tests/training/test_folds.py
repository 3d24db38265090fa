from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training import FoldsReport, Run, RunConfig, train_folds
from tests.cli.commands import Call, check_failure
from tests.cli.conftest import call as call

pytestmark = pytest.mark.tensorflow

RECIPE = training.Recipe(epochs=2, batch_size=8, precision="float32")


class StopInSecondRun(keras.callbacks.Callback):
    """Ctrl-C in the second epoch of the second run."""

    runs = 0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self.runs += 1

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if (self.runs, epoch) == (2, 1):
            raise KeyboardInterrupt


def test_report_has_mean_and_spread() -> None:
    report = FoldsReport({"accuracy": (0.25, 0.75), "macro_f1": (0.5, 0.5)})
    row = report.text().splitlines()[1]
    assert row.split() == ["accuracy", "0.5000", "0.3536", "0.2500", "0.7500"]
    assert report.to_json()["standard_deviation"]["accuracy"] == pytest.approx(np.sqrt(0.125))


@pytest.mark.slow
def test_stopped_folds_are_resumed(
    nano: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folds"
    config = RunConfig(str(photos), nano, recipe=RECIPE, folds=3)
    with pytest.raises(KeyboardInterrupt, match=r"train --resume --out .*folds$"):
        train_folds(config, out, tensorboard=False, callbacks=[StopInSecondRun()])
    assert not (out / "folds.json").exists()
    with pytest.raises(ValueError, match="`out` must be a new folder"):
        train_folds(config, out)
    report = train_folds(config, out, resume=True, tensorboard=False)
    assert "Resuming after epoch" in capsys.readouterr().out
    runs = [Run(out / f"fold_{i}") for i in (1, 2, 3)]
    held_out = np.concatenate([run.indices() for run in runs])
    assert sorted(held_out) == list(range(33))
    found = [json.loads(run.evaluation.read_text())["accuracy"] for run in runs]
    assert report.scores["accuracy"] == tuple(found)
    assert json.loads((out / "folds.json").read_text()) == report.to_json()


@pytest.mark.parametrize("least_steps", [0, 100])
def test_resumed_folds_have_the_settings_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_steps: int
) -> None:
    epochs: list[int] = []
    stops = [2]  # Ctrl-C at the beginning of the third fold

    def fit(config: RunConfig, out: Path, **options: Any) -> None:
        if config.fold in stops:
            stops.clear()
            raise KeyboardInterrupt
        out.mkdir(parents=True)
        epochs.append(max(config.recipe.epochs, options["least_steps"]))  # of one step each
        run, recipe = Run(out), config.recipe.replace(epochs=epochs[-1])
        run.write_config(dataclasses.replace(config, recipe=recipe), {})
        run.evaluation.write_text('{"accuracy": 0.5}')
        run.curves.touch()

    monkeypatch.setattr("keras_vit.training.folds.fit_run", fit)
    config, out = RunConfig("digits", "ViTMicro4", recipe=RECIPE, folds=4), tmp_path / "folds"
    with pytest.raises(KeyboardInterrupt):
        train_folds(config, out, least_steps=least_steps, smaller_batches=False)
    # What the command line passes without --epochs and --batch-size, as with --resume.
    train_folds(config, out, resume=True, least_steps=100, smaller_batches=True)
    assert epochs == [max(RECIPE.epochs, least_steps)] * 4


def test_folds_are_trained_one_after_another(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(training, "train_folds", lambda config, out, **o: seen.append((config, o)))
    options = ("--folds", 3, "--group-by", "patient", "--out", tmp_path / "folds")
    call("train", "--data", "digits", "--weights", "none", *options)
    config, _ = seen[0]
    assert (config.folds, config.group_by) == (3, "patient")
    (tmp_path / "folds" / "fold_1").mkdir(parents=True)
    code, _, message = call("train", "--resume", "--out", tmp_path / "folds")
    check_failure(code, message, "the folder of the run to resume")
    (tmp_path / "folds" / "fold_1" / "config.yaml").touch()
    assert call("train", "--resume", "--out", tmp_path / "folds")[0] == 0
    assert seen[1][1]["resume"]
    (tmp_path / "folds" / "folds.json").touch()
    output = call("train", "--resume", "--out", tmp_path / "folds")[1]
    assert f"The run {tmp_path / 'folds'} has already finished." in output
    assert "/fold_1/config.yaml --epochs N --out NEW" in output  # not --weights of images held out
    assert len(seen) == 2


def test_first_fold_that_is_no_run_yet_is_started_again(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fit(config: RunConfig, out: Path, **options: Any) -> None:
        with Run(out).writing("train", resume=False):
            (out / "split.csv").touch()
            raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.training.folds.fit_run", fit)
    out = tmp_path / "folds"
    command = ("train", "--data", "digits", "--weights", "none", "--folds", 3, "--out", out)
    for _ in range(2):
        code, output, _ = call(*command)
        assert code == 130
        assert "The same command resumes from the last saved state, or starts again." in output
        assert "--resume" not in output
    (out / "fold_1" / "config.yaml").touch()
    code, _, message = call(*command)
    check_failure(code, message, "which contains a run. Choose another folder, or resume the run")
