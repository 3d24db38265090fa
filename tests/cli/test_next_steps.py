"""Commands that are printed: they can be pasted, wherever a run lies."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from pathlib import Path

import PIL.Image
import pytest

from keras_vit import training
from keras_vit.training.signals import SignalHandler
from tests.cli.commands import Call, check_failure
from tests.training.photos import write_photos

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Ann's [first] $HOME").mkdir()
    return tmp_path / "Ann's [first] $HOME"


def pasted(output: str) -> list[list[str]]:
    """The words of each printed command as a shell reads them."""
    lines = re.findall(r"keras-vit ([a-z].*?)(?:`|$)", output, re.MULTILINE)
    shown = [subprocess.check_output(["sh", "-c", f"printf '%s\\n' {x}"], text=True) for x in lines]
    for line, words in zip(lines, shown, strict=True):
        assert "*" in line or shlex.split(line) == words.splitlines()
    return [words.splitlines() for words in shown]


@pytest.mark.slow
def test_next_steps_of_a_training_can_be_pasted(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = training.Run(folder / "run")
    options = ("--model", "ViTNano", "--image-size", "8x12", "--epochs", 1, "--batch-size", 8)
    with monkeypatch.context() as patch:
        received = property(lambda _: signal.SIGINT, lambda *_: None)
        patch.setattr(SignalHandler, "received", received, raising=False)
        data = write_photos(folder / "photos")
        code, output, _ = call("train", "--data", data, *options, "--out", run.path)
    go_on = ["train", "--resume", "--out", str(run.path)]
    assert (code, pasted(output)) == (130, [go_on])
    _, _, message = call("card", run.path)
    assert pasted(message) == [go_on]
    code, output, _ = call(*go_on, "--no-tensorboard")
    samples = sorted(map(str, run.samples.iterdir()))
    assert code == 0
    assert pasted(output) == [
        ["predict", str(run.path), *samples],
        ["export", str(run.path), "--to", f"{run.path}/serving"],
    ]


@pytest.mark.slow
def test_next_step_of_a_pretraining_can_be_pasted(call: Call, folder: Path) -> None:
    data, out = write_photos(folder / "photos"), folder / "run"
    options = ("--model", "ViTNano", "--image-size", "8x12", "--epochs", 1, "--batch-size", 8)
    code, output, _ = call(
        *("pretrain", "--data", data, *options, "--method", "masked-patches", "--out", out)
    )
    assert code == 0
    start = ["train", "--data", "LABELED", "--model", "ViTNano"]
    assert pasted(output) == [[*start, "--weights", f"{out}/last.keras", "--out", f"{out}_trained"]]
    code, _, message = call("export", out, "--to", folder / "serving")
    assert code == 1
    assert "written by `keras-vit train --out`" in message


@pytest.mark.slow
def test_next_steps_of_images_to_convert_can_be_pasted(call: Call, folder: Path) -> None:
    data, new = write_photos(folder / "photos"), folder / "new"
    PIL.Image.new("RGB", (31, 23)).save(data / "ant" / "a.tif")
    _, _, message = call("train", "--data", data, "--model", "ViTNano", "--out", folder / "run")
    assert pasted(message) == [["data", "convert", str(data), "NEW_FOLDER"]]
    _, output, _ = call("data", "convert", data, new, "--processes", 1)
    assert pasted(output) == [["data", "check", str(new)]]


@pytest.mark.parametrize("error", ["UnavailableError", "DeadlineExceededError"])
def test_lost_worker_is_one_message_with_the_command_for_all_machines(
    call: Call, monkeypatch: pytest.MonkeyPatch, folder: Path, error: str
) -> None:
    import tensorflow as tf

    out = folder / "run"

    def train(config: training.RunConfig, out: Path, **options: object) -> None:
        training.Run(out).write_config(config, {})
        raise getattr(tf.errors, error)(None, None, "Collective ops is aborted by: ...")

    monkeypatch.setattr(training, "train", train)
    code, _, message = call("train", "--data", "digits", "--out", out)
    expected = (
        "keras-vit: Another worker ended or cannot be reached. Saved states are kept. Resume on "
        "all machines with:\n  keras-vit train --resume --out "
    )
    check_failure(code, message, expected)
    assert pasted(message) == [["train", "--resume", "--out", str(out)]]
