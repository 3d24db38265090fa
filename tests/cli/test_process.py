"""The command line as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest

from keras_vit import training
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

COMMANDS = ("train", "evaluate", "predict", "export", "models")


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.mark.slow
def test_sigint_stops_a_real_run_that_can_go_on(tmp_path: Path) -> None:
    code = (
        "import signal\n"
        # A process that was started in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from keras_vit.cli import main\n"
        "main()"
    )
    data, run = write_photos(tmp_path / "photos"), training.Run(tmp_path / "run")
    size = ("--image-size", 8, "--batch-size", 8)
    command = ("train", "--data", data, "--model", "ViTMicro4", "--out", run.path, *size)
    process = subprocess.Popen(
        python(code, *command, "--epochs", 10_000), stdout=subprocess.PIPE, text=True
    )
    try:
        while not run.history.is_file() and process.poll() is None:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"keras-vit train --resume --out {run.path}" in output
    assert keras.saving.load_model(run.last).output_shape == (None, 3)
    assert [path for path in run.path.iterdir() if path.name.startswith(".")] == []
