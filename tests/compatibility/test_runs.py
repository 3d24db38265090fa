"""Runs that version 17e621a left go on, are evaluated, and are compared."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, export, training
from keras_vit.reports import Comparison, compare, comparison_worker
from keras_vit.tasks.evaluate import evaluate
from tests.cli.commands import call_main
from tests.compatibility.conftest import Expected
from tests.compatibility.narrow import means
from tests.helpers import assert_close, numpy

pytestmark = pytest.mark.tensorflow

# Measured: 0 on the processor that wrote the runs, 9e-7 there on one thread without oneDNN, which
# sums in another order.
TOLERANCE = 1e-5
STEPS = 5  # where each run was stopped


def resume(name: str) -> training.Run:
    run = training.Run(Path("runs", name))
    assert [path.name for path in run.checkpoints.iterdir()] == [f"step_{STEPS:09d}.npz"]
    assert not run.evaluation.exists()
    if name.startswith("masked"):
        config = training.PretrainConfig("", "")  # the run's own counts
        training.pretrain(config, run.path, resume=True)
    else:
        config = training.RunConfig("", "")
        training.train(config, run.path, resume=True, tensorboard=False)
    return run


SLOW = ("masked_autoencoder", "masked_patches", "multi_label", "distillation")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "classification",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
    ],
)
def test_stopped_run_ends_as_if_nothing_had_happened(
    name: str, files: Path, expected: Expected
) -> None:
    run = resume(name)
    last = keras.saving.load_model(run.last)
    answer = numpy(last(expected["pixels"], training=False))
    assert_close(answer, expected[f"runs/{name}"], TOLERANCE)
    assert_close(means(last), expected[f"means/{name}"], TOLERANCE)
    assert len(run.history.read_text().splitlines()) == 1 + 3  # epochs
    assert run.evaluation.exists() != name.startswith("masked")


def test_finished_run_is_evaluated_as_it_was(files: Path) -> None:
    run = training.Run("runs/finished")
    run.require_complete()
    examples = data.load(run.read_config().data)
    _, held_out = data.read_split(run.split, examples)
    model = keras.saving.load_model(run.last)
    report = evaluate(model, examples.subset(held_out), verbose=0).to_json()
    stored = json.loads(run.evaluation.read_text(encoding="utf-8"))
    assert {name: report[name] for name in stored} == stored


@pytest.mark.slow
def test_finished_run_is_evaluated_by_the_command(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_main("evaluate", "runs/finished") == 0
    stored = json.loads(Path("runs/finished/evaluation.json").read_text(encoding="utf-8"))
    assert f"accuracy {stored['accuracy']:.4f}" in capsys.readouterr().out


def test_finished_run_predicts_as_it_did(files: Path, expected: Expected) -> None:
    images = [Path("data/photos", name).read_bytes() for name in ("ant/01.jpg", "cow/02.png")]
    answer = export.load_predictor("runs/finished").probabilities(images)
    assert_close(answer, expected["files/runs/finished"], TOLERANCE)


def test_comparison_is_read_and_not_trained_again(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_worker, "_in_a_process", lambda *a: pytest.fail("trained"))
    folder = Path("comparison")
    stored = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    names = [model["name"] for model in stored["models"]]
    config = training.read_config(folder / "runs" / names[0] / "config.yaml")
    found = compare(config, names, folder)
    assert isinstance(found, Comparison)
    written = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    for old, new in zip(stored["models"], written["models"], strict=True):
        assert {name: new[name] for name in old} == old
    assert written["mcnemar"] == stored["mcnemar"]
    assert np.all([model["num_examples"] == 6 for model in written["models"]])
