from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest
import typer

from keras_vit import zoo
from keras_vit.cli import app
from tests.cli.commands import Call, check_failure

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


def test_evaluate_of_a_run_repeats_its_evaluation(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run, "--out", tmp_path)
    expected = json.loads((run / "evaluation.json").read_text())
    assert code == 0
    assert json.loads((tmp_path / "evaluation.json").read_text()) == expected
    assert (tmp_path / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert f"accuracy {expected['accuracy']:.4f} (" in output


def test_evaluate_takes_other_data(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run / "best.keras", "--data", photos, "--out", tmp_path)
    assert code == 0
    assert " of 33, 95% interval" in output


def test_evaluate_takes_a_weight_file(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    weights = tmp_path / "nano.weights.h5"
    keras.saving.load_model(run / "last.keras").save_weights(weights)
    code, output, _ = call(
        *("evaluate", weights, "--model", "ViTNano", "--image-size", "8x12"),
        *("--data", photos, "--out", tmp_path),
    )
    assert code == 0
    assert " of 33, 95% interval" in output


def test_models_lists_every_constructor(call: Call) -> None:
    code, output, _ = call("models")
    rows = [line.split() for line in output.splitlines()]
    assert code == 0
    assert {row[1] for row in rows if len(row) > 1 and row[1].startswith("ViT")} >= set(
        zoo.CONSTRUCTORS
    )
    assert "86,567,656" in output
    assert "22,050,664" in output


def test_evaluate_of_what_is_no_run_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    code, _, message = call("evaluate", tmp_path)
    check_failure(code, message, "`RUN_OR_FILE` must be a run folder or a file. Received")
    code, _, message = call("evaluate", tmp_path / "nowhere.keras")
    check_failure(code, message, "`RUN_OR_FILE` must be a run folder or a file. Received")
    code, _, message = call("evaluate", run / "last.keras")
    check_failure(code, message, "`--data` must name labelled images, unless a run is evaluated")
    shutil.copy(run / "last.keras", tmp_path / "weights.npz")
    code, _, message = call("evaluate", tmp_path / "weights.npz")
    check_failure(code, message, "A weight file needs the constructor that")


def commands(group: typer.Typer = app) -> Iterator[list[str]]:
    """Every command of the application, by its words."""
    yield []
    for command in group.registered_commands:
        yield [command.name or command.callback.__name__]
    for inner in group.registered_groups:
        yield from ([inner.name, *words] for words in commands(inner.typer_instance) if words)


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_has_an_example(call: Call, command: list[str]) -> None:
    code, output, _ = call(*command, "--help")
    lines = [line.strip() for line in output.splitlines() if "Usage:" not in line]
    assert code == 0
    assert any(line.startswith(" ".join(("keras-vit", *command))) for line in lines)
