"""A task of another package with masks as targets passes all commands, or is refused in a line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest

from keras_vit import training
from tests.cli.commands import call_main, with_places
from tests.cli.conftest import Call
from tests.cli.conftest import call as call
from tests.tasks.segmentation.conftest import write_shapes

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

TOY = Path(__file__).with_name("toy")
TASK = ("--task", "shapes")


@pytest.fixture(scope="module", autouse=True)
def installed() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOY)
        patch.setenv("PYTHONPATH", str(TOY))  # of the processes of a comparison
        yield


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of a bright rectangle on dark ground, of different sizes, and its masks."""
    return write_shapes(tmp_path_factory.mktemp("data") / "shapes")


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shapes_run") / "run"
    train = ("train", *TASK, "--data", shapes, "--model", "ViTMicro4", "--weights", "none")
    options = ("--epochs", 3, "--batch-size", 4, "--image-size", 32, "--lr", "0.003")
    recipe = ("--set", "warmup_steps=0", "--set", "resize=squash")
    assert call_main(*train, *options, *recipe, "--out", out) == 0
    return out


def accuracies(run: Path) -> list[str]:
    return [row["val_pixel_accuracy"] for row in csv.DictReader((run / "history.csv").open())]


def test_dense_task_learns(run: Path) -> None:
    found = json.loads((run / "evaluation.json").read_text())
    assert found["pixel_accuracy"] > 0.8  # a fourth of the pixels are bright
    assert (run / "best.keras").is_file()
    split = list(csv.DictReader((run / "split.csv").open()))
    assert {"file", "mask", "split"} <= set(split[0])


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_dense_run_is_resumed_to_the_bit(run: Path, call: Call, tmp_path: Path) -> None:
    config = training.read_config(run / "config.yaml")
    with pytest.raises(KeyboardInterrupt):
        training.train(config, tmp_path / "again", callbacks=[Stop()])
    assert call("train", "--resume", "--out", tmp_path / "again")[0] == 0
    assert accuracies(tmp_path / "again") == accuracies(run)
    weights = [training.Run(path).model().get_weights() for path in (run, tmp_path / "again")]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "RUN", "--data", "DATA", "--with-training-images", "--out", "OUT"),
        ("data", "preview", "DATA", *TASK, "--image-size", "32", "--out", "OUT.png"),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ("evaluate", "RUN", "--report", "OUT"),
                ("data", "check", "DATA", *TASK),
                ("predict", "RUN", "DATA/images", "--to", "OUT.csv"),
                ("card", "RUN", "--out", "OUT"),
                ("plan", "--model", "ViTMicro4", "--memory", "16GiB"),
                ("evaluate", "RUN"),
                ("predict", "RUN", "IMAGE"),
                ("export", "RUN", "--to", "OUT", "--tflite", "dynamic_range"),
            )
        ),
    ],
    ids=" ".join,
)
def test_dense_task_passes_a_command(
    command: tuple[str, ...], run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    places = {"RUN": run, "DATA": shapes, "IMAGE": shapes / "images" / "3.png"}
    places["OUT"] = tmp_path / "out"
    code, text, message = call(*with_places(command, places))
    assert code == 0, message
    assert "REFUSED" not in text


@pytest.mark.parametrize("command", ["explain", "doctor", "probe"])
def test_command_for_classifiers_refuses_a_dense_task(
    command: str, run: Path, shapes: Path, call: Call
) -> None:
    more = [shapes / "images" / "3.png"] if command == "explain" else []
    code, _, message = call(command, run, *more)
    assert code == 1
    assert f"`keras-vit {command}` must be used with a classifier" in message
    assert "Received: a model of the task shapes" in message


@pytest.mark.slow
def test_dense_runs_are_compared(run: Path, shapes: Path, call: Call, tmp_path: Path) -> None:
    models = ("--models", f"{run},ViTMicro4", "--data", shapes, *TASK)
    code, text, message = call(
        "compare", *models, "--epochs", 1, "--image-size", 32, "--out", tmp_path
    )
    assert code == 0, message
    assert "pixel_accuracy" in text


def test_mask_of_another_size_is_reported(shapes: Path, call: Call, tmp_path: Path) -> None:
    for part in ("images", "masks"):
        (tmp_path / part).mkdir()
        for path in (shapes / part).iterdir():
            (tmp_path / part / path.name).write_bytes(path.read_bytes())
    PIL.Image.new("L", (9, 9)).save(tmp_path / "masks" / "3.png")
    code, text, _ = call("data", "check", tmp_path, *TASK)
    assert code == 1
    assert "3.png: the mask has (9, 9) pixels" in text
