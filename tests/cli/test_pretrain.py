"""`keras-vit pretrain`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from keras_vit import training
from keras_vit.cli import app
from keras_vit.training import PretrainConfig, Run, pretraining_recipe
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[2]

Call = Callable[..., dict[str, Any]]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["pretrain", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command; returns what it would have started."""
    seen: dict[str, Any] = {}

    def pretrain(config: PretrainConfig, out: Path, *, resume: bool) -> None:
        seen.update(config=config, out=out, resume=resume)

    monkeypatch.setattr(training, "pretrain", pretrain)

    def run(*arguments: object) -> dict[str, Any]:
        seen.clear()
        found = invoke(*arguments)
        if found.exception is not None:
            raise found.exception
        return seen

    return run


def test_defaults_are_those_of_the_configuration(call: Call, tmp_path: Path) -> None:
    found = call("--data", tmp_path)
    assert found["config"] == PretrainConfig(str(tmp_path), "ViTTi16")
    assert (found["out"], found["resume"]) == (Path("runs/pretrained"), False)


def test_options_reach_the_configuration(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "start.npz"
    file.touch()
    found = call(
        *("--method", "masked-patches", "--data", "digits", "--model", "ViTS16"),
        *("--weights", file, "--image-size", "48x80", "--epochs", 3, "--batch-size", 20),
        *("--learning-rate", "1e-3", "--mask-ratio", 0.3, "--out", tmp_path / "run"),
        *("--seed", 5, "--strategy", "mirrored", "--validation-fraction", 0.15),
        *("--on-bad-image", "skip", "--recipe", "masked_patches_paper", "--split-seed", 4),
        *("--precision", "float32", "--save-minutes", 2.5, "--save-steps", 7),
        *("--set", "weight_decay=0.2", "--set", "crop_area=[0.3, 0.9]", "--set", "decoder_depth=2"),
    )
    recipe = pretraining_recipe("masked_patches_paper").replace(
        **{"epochs": 3, "batch_size": 20, "learning_rate": 1e-3, "image_size": (48, 80)},
        **{"seed": 5, "weight_decay": 0.2, "crop_area": (0.3, 0.9), "precision": "float32"},
    )
    assert found["config"] == PretrainConfig(
        data="digits",
        model="ViTS16",
        method="masked-patches",
        weights=str(file),
        mask_ratio=0.3,
        decoder_depth=2,
        validation_fraction=0.15,
        split_seed=4,
        save_minutes=2.5,
        save_steps=7,
        on_bad_image="skip",
        strategy="mirrored",
        recipe=recipe,
    )
    assert found["out"] == tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "`--data` must name images. A folder of images"),
        (
            ("--data", ".", "--image-size", "big"),
            "`--image-size` must have the form 224 or 224x320.",
        ),
        (
            ("--data", ".", "--recipe", "mae"),
            "`recipe` must be one of 'photographs', 'mae_paper'",
        ),
        (("--data", ".", "--mask-ratio", 1.5), r"`mask_ratio` must be in \(0, 1\)"),
        (("--data", ".", "--set", "norm_pixx=1"), "'norm_pixx' is not a recipe field"),
        (
            ("--resume", "--epochs", 5, "--set", "a=1"),
            r"with --out; [\s\S]*--data DATA --model MODEL [\s\S]*: --epochs, --set",
        ),
    ],
)
def test_wrong_options_are_refused(call: Call, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*arguments)


def test_resume_takes_only_the_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    found = call("--resume", "--out", tmp_path)
    assert (found["out"], found["resume"]) == (tmp_path, True)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["Saved after epoch 3, step 5."], "Saved after epoch 3, step 5."),
        (
            [],
            "Interrupted. The same command resumes from the last saved state, or starts again.",
        ),
    ],
)
def test_interruption_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, said: list[str], expected: str
) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt(*said)

    monkeypatch.setattr(training, "pretrain", stopped)
    found = invoke("--data", "digits", "--out", "none")
    assert found.exit_code == 130
    assert expected in found.output


def test_help_teaches_what_comes_next() -> None:
    text = invoke("--help").output
    assert "keras-vit pretrain --data photos/ --model ViTTi16" in text
    assert "keras-vit train --data labeled/" in text
    for option in ("--method", "--mask-ratio", "--resume", "--strategy", "--recipe"):
        assert option in text
    for group in ("Images and model", "Recipe", "Devices", "Run folder"):
        assert f"─ {group} ─" in text


def weights(run: Run) -> list[np.ndarray]:
    return keras.saving.load_model(run.last).get_weights()


@pytest.mark.slow
def test_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    write_photos(folder)
    (folder / "bee" / "00.jpg").rename(folder / "one.jpg")  # so that it is no set of classes

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        code = "from keras_vit.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, "pretrain", *map(str, arguments)],
            # One thread: sums come in one order.
            env={
                **os.environ,
                **{"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"},
                **{"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"},
            },
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )

    runs = [Run(tmp_path / name) for name in ("undisturbed", "killed")]
    options = [
        *("--data", folder, "--model", "ViTMicro4", "--image-size", 8, "--batch-size", 8),
        *("--epochs", 6, "--set", "precision=float32", "--set", "dropout_rate=0.1"),
    ]
    assert start(*options, "--out", runs[0].path).wait(timeout=300) == 0
    process = start(*options, "--out", runs[1].path)
    kills = 0
    try:
        while process.poll() is None and kills < 2:
            states = sorted(runs[1].checkpoints.glob("step_*.npz"))
            if states and int(states[-1].stem[5:]) >= 6 * (kills + 1):
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=60)
                kills += 1
                process = start("--resume", "--out", runs[1].path)
            time.sleep(0.05)
        assert process.wait(timeout=300) == 0
    finally:
        process.kill()
    assert kills == 2
    assert runs[1].history.read_text() == runs[0].history.read_text()
    for one, other in zip(weights(runs[0]), weights(runs[1]), strict=True):
        np.testing.assert_array_equal(one, other)
