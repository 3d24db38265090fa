from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.runs import history
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.state_files import Progress
from keras_vit.training import progress
from keras_vit.training.progress import (
    EpochClock,
    ProgressBar,
    TensorBoard,
    learning_rate,
)
from keras_vit.training.schedules import WarmupDecay


class Model:
    """As much of a model as the bar looks at."""

    def __init__(self) -> None:
        self.optimizer = keras.optimizers.SGD(WarmupDecay(0.5, total_steps=6))


def run(bar: ProgressBar, epochs: range, steps: int) -> None:
    bar.set_model(Model())
    bar.on_train_begin()
    for epoch in epochs:
        bar.on_epoch_begin(epoch)
        for step in range(steps):
            bar.on_train_batch_end(step, {"loss": 1.5, "accuracy": 0.25, "gradient_norm": 7.0})
        bar.on_epoch_end(epoch, {"loss": 1.25, "val_accuracy": 0.5})
    bar.close()


def test_clock_keeps_the_time_of_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    clock = EpochClock(tmp_path / "times.csv")
    for epoch in (0, 1):
        clock.on_epoch_begin(epoch)
        for step in range(3):
            clock.on_train_batch_end(step)
        clock.on_epoch_end(epoch)
    expected = [
        {"epoch": epoch, "steps": 3.0, "training_seconds": 30.0, "seconds": 40.0}
        for epoch in (0.0, 1.0)
    ]
    assert history.read_rows(tmp_path / "times.csv") == expected


def test_clock_of_a_run_that_goes_on_counts_its_last_epoch_anew(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("epoch,steps,training_seconds,seconds\n0,9,3,4\n1,9,5,6\n2,9,7,8\n")
    clock = EpochClock(path)
    clock.on_epoch_begin(1)
    clock.on_train_batch_end(7)
    clock.on_epoch_end(1)
    assert [row["epoch"] for row in history.read_rows(path)] == [0, 1]
    assert history.read_rows(path)[0]["seconds"] == 4
    assert history.read_rows(path)[1]["training_seconds"] < 1
    assert history.read_rows(path)[1]["steps"] == 1


def test_epochs_leave_their_results(capsys: pytest.CaptureFixture[str]) -> None:
    run(ProgressBar(Recipe(epochs=2, batch_size=5), Progress(steps=3)), range(2), 3)
    text = capsys.readouterr().err
    assert "Epoch 1/2: loss 1.2500, val_accuracy 0.5000 (0 s)" in text
    assert "Epoch 2/2: loss 1.2500, val_accuracy 0.5000 (0 s)" in text


def test_file_gets_a_line_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    run(ProgressBar(Recipe(epochs=1, batch_size=5), Progress(steps=9)), range(1), 9)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  step")]
    assert len(lines) == 3
    # A step every 20 seconds, the first of which is not counted: it compiles.
    assert " left, 0.2 images/s, loss 1.5000, accuracy 0.2500, learning rate 5.0e-01" in lines[1]
    assert "gradient_norm" not in lines[0]


def test_rate_is_read_while_fit_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_IN_A_FILE", 0.0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(WarmupDecay(0.5, total_steps=6, decay="linear")), "mse")
    x = np.ones((18, 2), "float32")
    bar = ProgressBar(Recipe(epochs=1, batch_size=3), Progress(steps=6))
    model.fit(x, x[:, :1], batch_size=3, callbacks=[bar], verbose=0)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  step")]
    assert len(lines) == 6
    assert "learning rate 2.5e-01" in lines[2]  # of the step after three of six


def test_resumed_run_counts_from_where_it_was() -> None:
    bar = ProgressBar(Recipe(epochs=3, batch_size=5), Progress(epoch=1, step=2, steps=4))
    assert (bar.done, bar.total) == (6, 12)


def test_closing_twice_is_harmless() -> None:
    bar = ProgressBar(Recipe(epochs=1, batch_size=1), Progress(steps=1))
    bar.close()
    bar.close()


def test_learning_rate_with_and_without_loss_scaling() -> None:
    optimizer = keras.optimizers.SGD(WarmupDecay(0.5, total_steps=6))
    assert learning_rate(optimizer) == pytest.approx(0.5)
    assert learning_rate(keras.optimizers.LossScaleOptimizer(optimizer)) == pytest.approx(0.5)


@pytest.mark.tensorflow
def test_tensorboard_holds_the_learning_rate(tmp_path: Path) -> None:
    board = TensorBoard(str(tmp_path))
    board._model = Model()  # type: ignore[assignment]
    found: dict[str, Any] = board._collect_learning_rate({"loss": 1.5})
    assert found == {"loss": 1.5, "learning_rate": pytest.approx(0.5)}


@pytest.mark.tensorflow
@pytest.mark.parametrize("profile", [(0, 3), (5, 2)])
def test_tensorboard_refuses_steps_that_are_none(tmp_path: Path, profile: tuple[int, int]) -> None:
    with pytest.raises(
        ValueError, match=r"`profile` must be the first and last step to profile,.*Rec"
    ):
        TensorBoard(str(tmp_path), profile)
