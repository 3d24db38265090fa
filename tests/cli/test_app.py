from __future__ import annotations

import errno
import json
import os
import shutil
from importlib import metadata
from pathlib import Path

import keras
import pytest

from keras_vit import __version__, zoo
from tests.cli.commands import Call, check_failure, commands

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


@pytest.mark.slow
def test_evaluate_of_a_run_repeats_its_evaluation(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run, "--out", tmp_path)
    expected = json.loads((run / "evaluation.json").read_text())
    assert code == 0
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert found == {**expected, "images": "held out"}
    assert (tmp_path / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert f"accuracy {expected['accuracy']:.4f} (" in output


@pytest.mark.slow
def test_evaluate_takes_other_data(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run / "best.keras", "--data", photos, "--out", tmp_path)
    assert code == 0
    assert " of 7, 95% interval" in output  # without those that the run was trained on


@pytest.mark.slow
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
    assert {row[0] for row in rows if row} >= set(zoo.CONSTRUCTORS)
    assert "86,567,656" in output
    assert "22,050,664" in output


def test_evaluate_of_what_is_no_run_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    code, _, message = call("evaluate", tmp_path)
    check_failure(code, message, "`RUN` must be a run folder or a model file. Received")
    code, _, message = call("evaluate", tmp_path / "nowhere.keras")
    check_failure(code, message, "`RUN` must be a run folder or a model file. Received")
    code, _, message = call("evaluate", run / "last.keras")
    check_failure(code, message, "`--data` must be given unless `RUN` is a run.")
    shutil.copy(run / "last.keras", tmp_path / "weights.npz")
    code, _, message = call("evaluate", tmp_path / "weights.npz")
    check_failure(
        code,
        message,
        "A weight file must be passed with the constructor of its model, as in `--model ViTB16`",
    )


def test_full_disk_is_one_line_with_the_file(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    report = tmp_path / "plan.json"
    code, _, message = call("plan", "--model", "ViTNano", "--memory", "1GiB", "--json", report)
    assert code == 1
    assert message.endswith(
        f"keras-vit: [Errno 28] No space left on device: '{report}'. Complete files are kept. "
        "Free some space, and repeat the command.\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_has_an_example(call: Call, command: list[str]) -> None:
    code, output, _ = call(*command, "--help")
    lines = [line.strip() for line in output.splitlines() if "Usage:" not in line]
    assert code == 0
    assert any(line.startswith(" ".join(("keras-vit", *command))) for line in lines)


def test_version_names_the_package_and_what_it_runs_on(call: Call) -> None:
    code, output, _ = call("--version")
    assert code == 0
    assert output.startswith(f"keras-vit-toolkit {__version__}\npython 3.")
    assert f"\nkeras {keras.__version__}\ntensorflow {metadata.version('tensorflow')}\n" in output


def test_verbose_asks_tensorflow_for_its_log(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    assert call("--verbose", "recipes", "finetune")[0] == 0
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
