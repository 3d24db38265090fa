from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_vit import data
from keras_vit.reports import comparison_worker
from keras_vit.runs.history import write_rows
from keras_vit.training import Recipe, Run, RunConfig

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_is_measured_and_not_changed(run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = comparison_worker.measure_run("mine", Run(run), tmp_path / "mine")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert np.mean(found.predicted == found.labels) == evaluation["accuracy"]
    examples = data.load(Run(run).read_config().data)
    held_out = data.read_split(run / "split.csv", examples)[1]
    assert found.names == examples.subset(held_out).names
    assert found.class_names == ("ant", "bee", "cow")
    assert found.peak_memory is None
    assert found.start is None
    assert found.training_minutes > 0
    assert len(found.history) == 1
    assert found.minutes_to(0.0) == found.history[0][0]
    assert found.minutes_to(1.1) is None


@pytest.mark.slow
def test_an_incomplete_run_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").unlink()
    with pytest.raises(
        ValueError, match=r"`run` must be complete\. .*no evaluation\.json; resume the run"
    ):
        comparison_worker.measure_run("mine", Run(tmp_path / "run"), tmp_path / "mine")


@pytest.mark.parametrize("rest", [30, 3])
def test_an_epoch_that_was_interrupted_counts_as_a_whole_one(rest: int, tmp_path: Path) -> None:
    """At 2 s a step and 5 s of validation; of the second epoch only the rest was timed."""
    run = Run(tmp_path)
    run.write_config(config(), {"training_examples": 241})  # 30 steps
    rows = [
        "epoch,steps,training_seconds,seconds",
        "0,30,60,65",
        f"1,{rest},{2 * rest},{2 * rest + 5}",
    ]
    (tmp_path / "times.csv").write_text("\n".join(rows))
    assert comparison_worker._minutes(run, 8) == pytest.approx({0: 65 / 60, 1: 65 / 60})
    (tmp_path / "times.csv").write_text("\n".join([*rows[:2], "2,30,70,75"]))
    assert comparison_worker._minutes(run, 8) == pytest.approx({0: 65 / 60, 1: 70 / 60, 2: 75 / 60})
    (tmp_path / "times.csv").unlink()
    assert comparison_worker._minutes(run, 8) == {}


def test_epochs_without_a_whole_time_count_as_whole_ones(tmp_path: Path) -> None:
    """A single epoch that was resumed at its end, or a stop at the end of the last epoch."""
    run = Run(tmp_path)
    run.write_config(config(), {"training_examples": 241})  # 30 steps
    run.times.write_text("epoch,steps,training_seconds,seconds\n0,3,6,11\n")
    for epochs in (1, 2):
        write_rows(run.history, [{"epoch": epoch, "loss": 0.5} for epoch in range(epochs)])
        expected = pytest.approx(dict.fromkeys(range(epochs), 65 / 60))
        assert comparison_worker._minutes(run, 8) == expected


def test_training_speed_leaves_out_the_epoch_with_compilation(tmp_path: Path) -> None:
    rows = ["epoch,steps,training_seconds,seconds", "0,30,90,95", "1,30,60,65", "2,30,50,75"]
    for epochs, expected in [(1, None), (2, 4.0), (3, 4.8)]:
        (tmp_path / "times.csv").write_text("\n".join(rows[: epochs + 1]))
        assert comparison_worker._training_speed(Run(tmp_path), batch_size=8) == expected
    (tmp_path / "times.csv").unlink()
    assert comparison_worker._training_speed(Run(tmp_path), batch_size=8) is None


def config() -> RunConfig:
    recipe = Recipe(epochs=1, batch_size=8, image_size=(8, 12), precision="float32")
    return RunConfig("photos", "ViTMicro4", recipe=recipe)


def test_a_training_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_worker, "_IN_A_PROCESS", "raise SystemExit(3)")
    with pytest.raises(ValueError, match="The process of ViTMicro4 ended with status 3; see its"):
        comparison_worker.run_model("ViTMicro4", config(), tmp_path)


# A process in the background, as on a server, inherits that it shall not mind Ctrl-C.
KILLED = (
    "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.kill(os.getpid(), signal.SIGINT)"
)


@pytest.mark.parametrize("ends", ["raise SystemExit(130)", KILLED])
def test_a_training_that_was_stopped_is_no_failure(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_worker, "_IN_A_PROCESS", ends)
    with pytest.raises(KeyboardInterrupt, match=r"ViTMicro4 was stopped\. Run the same command"):
        comparison_worker.run_model("ViTMicro4", config(), tmp_path)


SAVES = """
import pathlib, signal, sys, time
def stop(*_):
    time.sleep(1.5)  # longer than Python's own patience with a child
    (pathlib.Path(sys.argv[1]) / "saved").touch()
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
(pathlib.Path(sys.argv[1]) / "running").touch()
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_waits_until_the_training_has_saved(number: int, tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to both processes, SIGTERM to the outer one alone."""
    program = (
        "import pathlib, sys; from keras_vit.reports import comparison_worker; "
        f"comparison_worker._IN_A_PROCESS = {SAVES!r}; "
        "comparison_worker._in_a_process('ViTMicro4', sys.argv[1])"
    )
    outer = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], start_new_session=True, cwd=ROOT,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(600):
        if (tmp_path / "running").exists():
            break
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(outer.pid, number)
    else:
        outer.terminate()
    _, said = outer.communicate(timeout=60)
    assert (tmp_path / "saved").exists()
    assert "ViTMicro4 was stopped. Run the same command again to resume." in said


def test_another_comparison_is_not_taken_over(tmp_path: Path) -> None:
    from keras_vit.runs.config import write_config

    write_config(tmp_path / "config.yaml", config())
    other = RunConfig("others", "ViTMicro4")
    with pytest.raises(ValueError, match="`out` must be a new folder, or the folder of the same"):
        comparison_worker.run_model("ViTMicro4", other, tmp_path)


@pytest.mark.slow
def test_a_contestant_is_trained_once_and_in_a_process_of_its_own(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(epochs=2, batch_size=8, image_size=(8, 12), precision="float32")
    config = RunConfig(str(photos), "ViTMicro4", recipe=recipe)
    found = comparison_worker.run_model("ViTMicro4", config, tmp_path)
    assert found.peak_memory > 1e8
    assert found.parameters == 305_091  # of ViTMicro4 for 8 x 12 pixels and three classes
    assert len(found.history) == 2
    assert found.history[0][0] < found.history[1][0]
    assert found.training_speed > 0
    assert found.flops > 1e5
    monkeypatch.setattr(comparison_worker, "_in_a_process", lambda *a: pytest.fail("trained again"))
    again = comparison_worker.run_model("ViTMicro4", config, tmp_path)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
