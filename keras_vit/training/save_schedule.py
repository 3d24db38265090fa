"""Callback that saves the state of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from keras_vit.training.run_state import RunState
from keras_vit.training.signals import SignalHandler


class SaveSchedule(keras.callbacks.Callback):
    """Saves the state of a run after every epoch, within an epoch when it is due, and on a signal.

    A loss, norm or weight that is not finite ends the run without saving.
    """

    def __init__(self, state: RunState, interruption: SignalHandler) -> None:
        super().__init__()
        self.state = state
        self.interruption = interruption

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.restore_metrics()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        state = self.state
        step = state.progress.step + 1  # `batch` counts from the start of this call of `fit`
        state.require_finite(step, logs or {})
        state.logs = logs or {}
        state.progress = dataclasses.replace(state.progress, step=step)
        # At the end of an epoch, the state is saved after the validation.
        if step == state.steps:
            return
        stop = self.interruption.received is not None
        if state.due(step) or (stop and state.devices.workers == 1):
            state.save()
        if stop:
            self.interruption.stop(state.how_to_resume())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.end_epoch({name: float(value) for name, value in (logs or {}).items()})
        self.interruption.stop(self.state.how_to_resume())
        if self.state.stopped_early:
            self.model.stop_training = True
