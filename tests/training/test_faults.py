"""Runs that are killed, on full disks and in folders that cannot be written."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.runs.config import write_config
from keras_vit.runs.state_files import StateFiles
from keras_vit.training import Recipe, Run, RunConfig

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KILLS = 20
# linux/prctl.h and linux/capability.h
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1
# Every kind of randomness and of state is on.
RECIPE = Recipe(
    epochs=12,
    batch_size=8,
    learning_rate=3e-3,
    ema_momentum=0.9,
    dropout_rate=0.1,
    stochastic_depth_rate=0.2,
    precision="float32",
).replace(mixup=0.3, cutmix=1.0, rand_augment_ops=2, erasing=0.3, repeats=2)


@pytest.fixture(scope="module")
def config(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    write_config(path, RunConfig(str(photos), "ViTNano", split_seed=3, recipe=RECIPE, save_steps=1))
    return path


def start(
    config: Path, out: Path, limit: int | None = None, obeys: bool = False
) -> subprocess.Popen[bytes]:
    """Starts a run.

    Args:
        config: What to train.
        out: The run folder.
        limit: Largest size of a file in bytes.
        obeys: Whether permissions bind the process even if it is root's, who else writes
            everywhere.
    """

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if obeys and os.geteuid() == 0:
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)

    log = (out.parent / f"{out.name}.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.worker", str(config), str(out)],
        # One thread: sums come in one order.
        env={
            **os.environ,
            **{"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"},
            **{"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"},
        },
        cwd=ROOT,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=limited,
    )


def log_of(out: Path) -> str:
    return (out.parent / f"{out.name}.log").read_text(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert start(config, out).wait(timeout=300) == 0, log_of(out)
    return Run(out)


def newest(out: Path) -> int:
    paths = StateFiles(Run(out).checkpoints).paths()
    return int(paths[0].stem.removeprefix("step_")) if paths else 0


@pytest.mark.timeout(1800)
def test_twenty_kills_change_nothing(config: Path, undisturbed: Run, tmp_path: Path) -> None:
    """A state is written after every step, so that most kills hit the writing of one."""
    out = tmp_path / "run"
    steps = RECIPE.epochs * 3
    chance = random.Random(20)
    reached = [0]
    for kill in range(KILLS):
        process = start(config, out)
        # Some kills come right after the start, the others after up to two more steps.
        goal = min(newest(out) + chance.choice([0, 1, 1, 2]), steps - 1)
        until = time.monotonic() + 120
        while newest(out) < goal and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        assert process.poll() is None, f"kill {kill}: ended by itself\n{log_of(out)}"
        process.kill()
        process.wait()
        assert newest(out) >= reached[-1], "a state was lost"
        reached.append(newest(out))
    assert start(config, out).wait(timeout=300) == 0, log_of(out)
    run = Run(out)
    assert run.history.read_text() == undisturbed.history.read_text()
    assert run.evaluation.read_text() == undisturbed.evaluation.read_text()
    for name in ("last.keras", "best.keras"):
        ours, theirs = (
            keras.saving.load_model(r.path / name).get_weights() for r in (run, undisturbed)
        )
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    leftovers = [p for p in run.path.rglob(".*") if p.name.startswith(".step_")]
    assert leftovers == []


def states(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.checkpoints.glob("step_*.npz")}


@pytest.mark.timeout(600)
def test_full_disk_leaves_the_last_state_loadable(
    config: Path, undisturbed: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start(config, out)
    while newest(out) < 4 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = states(Run(out))
    size = min(map(len, before.values()))
    # No file may grow beyond half a state: as on a disk with little left.
    failed = start(config, out, limit=size // 2)
    assert failed.wait(timeout=300) != 0
    assert states(Run(out)) == before
    assert "File too large" in log_of(out)
    assert start(config, out).wait(timeout=300) == 0, log_of(out)
    assert Run(out).history.read_text() == undisturbed.history.read_text()


@pytest.mark.timeout(600)
def test_read_only_folder_leaves_the_last_state_loadable(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(config, out)
    while newest(out) < 4 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = states(Run(out))
    for folder in (Run(out).path, Run(out).checkpoints):
        folder.chmod(0o555)
    try:
        assert start(config, out, obeys=True).wait(timeout=300) != 0
        assert states(Run(out)) == before
        assert "Permission denied" in log_of(out)
    finally:
        for folder in (Run(out).path, Run(out).checkpoints):
            folder.chmod(0o755)
    assert StateFiles(Run(out).checkpoints).load()[0].epoch >= 1
