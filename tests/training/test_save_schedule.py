"""When a run saves its state, without a model; what it saves: test_run_state.py."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from keras_vit.runs.state_files import Progress
from keras_vit.training.save_schedule import SaveSchedule
from keras_vit.training.signals import SignalHandler


class State:
    """State of a run that writes nothing and lists its calls."""

    def __init__(self, *, steps: int, due: bool = False, workers: int = 1) -> None:
        self.steps = steps
        self.progress = Progress(steps=steps)
        self.devices = SimpleNamespace(workers=workers)
        self.stopped_early = False
        self.calls: list[Any] = []
        self._due = due

    def due(self, step: int) -> bool:
        return self._due

    def how_to_resume(self) -> str:
        return "resume"

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def test_state_is_saved_when_it_is_due_but_not_before_the_validation() -> None:
    state = State(steps=3, due=True)
    schedule = SaveSchedule(state, SignalHandler())  # type: ignore[arg-type]
    schedule.on_epoch_begin(0)
    for batch in range(3):
        schedule.on_train_batch_end(batch, {"loss": 1.0})
    schedule.on_epoch_end(0, {"val_loss": 2})
    assert state.calls == [
        ("restore_metrics",),
        ("require_finite", 1, {"loss": 1.0}),
        ("save",),
        ("require_finite", 2, {"loss": 1.0}),
        ("save",),
        ("require_finite", 3, {"loss": 1.0}),
        ("end_epoch", {"val_loss": 2.0}),
    ]


@pytest.mark.parametrize(("workers", "saved"), [(1, True), (2, False)])
def test_signal_saves_the_state_and_ends_the_run(workers: int, saved: bool) -> None:
    interruption = SignalHandler()
    interruption.received = signal.SIGINT
    state = State(steps=3, workers=workers)
    with pytest.raises(KeyboardInterrupt, match="resume"):
        SaveSchedule(state, interruption).on_train_batch_end(0, {})  # type: ignore[arg-type]
    assert (("save",) in state.calls) == saved
    assert state.progress.step == 1


def test_early_stopping_ends_training() -> None:
    state = State(steps=3)
    state.stopped_early = True
    schedule = SaveSchedule(state, SignalHandler())  # type: ignore[arg-type]
    model: Any = SimpleNamespace(stop_training=False)
    schedule.set_model(model)
    schedule.on_epoch_end(0)
    assert model.stop_training
