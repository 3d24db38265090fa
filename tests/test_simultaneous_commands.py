"""Two equal commands at once: one wins, the other names it, and nothing is lost."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_vit.training import Run
from tests.training.photos import write_photos

# Twenty rounds of two processes each that import TensorFlow.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(1800)]

ROUNDS = 20
REFUSED = r"must not be in use.*`keras-vit \w+`, process \d+ on"


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "keras_vit_toolkit", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    message = process.communicate()[1]
    assert process.returncode == 0, message


def check_two_at_once(*words: object, refused: str = REFUSED) -> None:
    both = [start(*words) for _ in range(2)]
    messages = [process.communicate()[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 1], messages
    assert re.search(refused, messages[codes.index(1)]), messages


def train_words(photos: Path, epochs: int) -> tuple[object, ...]:
    return (
        *("train", "--data", photos, "--model", "ViTMicro4", "--image-size", 16),
        *("--epochs", epochs, "--no-tensorboard", "--set", "batch_size=8"),
    )


def epochs(run: Run) -> int:
    return len(run.history.read_text().splitlines()[1:]) if run.history.is_file() else 0


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("runs") / "finished")
    finish(start(*train_words(photos, 1), "--out", run.path))
    return run


@pytest.fixture(scope="module")
def stopped(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was stopped within its 8 epochs."""
    run = Run(tmp_path_factory.mktemp("runs") / "stopped")
    process = start(*train_words(photos, 8), "--out", run.path)
    while process.poll() is None and epochs(run) < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    message = process.communicate()[1]
    assert process.returncode == 130, message
    assert not run.evaluation.exists()
    return run


def test_of_two_runs_one_wins(photos: Path, tmp_path: Path) -> None:
    for number in range(ROUNDS):
        out = tmp_path / str(number)
        check_two_at_once(
            *train_words(photos, 1), "--out", out, refused=f"{REFUSED}|which contains a run"
        )
        assert Run(out).evaluation.is_file()


def test_of_two_that_resume_one_wins(stopped: Run, tmp_path: Path) -> None:
    alone = Run(shutil.copytree(stopped.path, tmp_path / "alone"))
    finish(start("train", "--resume", "--out", alone.path, "--no-tensorboard"))
    for number in range(ROUNDS):
        run = Run(shutil.copytree(stopped.path, tmp_path / str(number)))
        check_two_at_once("train", "--resume", "--out", run.path, "--no-tensorboard")
        for name in ("evaluation.json", "history.csv", "split.csv", "labels.txt"):
            assert (run.path / name).read_bytes() == (alone.path / name).read_bytes()


def test_of_two_exports_one_wins(finished: Run, tmp_path: Path) -> None:
    kept = {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()}
    for number in range(ROUNDS):
        to = tmp_path / str(number)
        check_two_at_once("export", finished.path, "--to", to, "--tflite", "float32")
        assert {path.name for path in to.glob("[!.]*")} == {"vit", "vit-files", "batching.config"}
        for folder, manifest in (
            (to / "vit" / "1", to / "vit" / "1" / "assets.extra" / "manifest.json"),
            (to / "vit-files" / "1", to / "vit-files" / "1" / "manifest.json"),
        ):
            assert [path.name for path in folder.parent.iterdir()] == ["1"]
            files = json.loads(manifest.read_text())["files"]
            assert files
            for name, told in files.items():
                assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == told["sha256"]
    assert {path: path.read_bytes() for path in kept} == kept
