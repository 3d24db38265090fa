from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training import FoldsReport, Run, RunConfig, train_folds

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
