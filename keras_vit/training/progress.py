"""Progress reporting: a progress bar, TensorBoard logs and epoch durations."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import rich.progress
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.table import Column

from keras_vit.runs import history
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.state_files import Progress

# Seconds between two updates; longer in a file, where no line can be overwritten.
_SECONDS_IN_A_TERMINAL, _SECONDS_IN_A_FILE = 0.5, 60.0


class ProgressBar(keras.callbacks.Callback):
    """Progress bar for a whole run, with speed, remaining time, metrics and learning rate.

    In a terminal a single line is updated; in a file one line is written per minute. After every
    epoch, its results are printed.
    """

    def __init__(self, recipe: Recipe, progress: Progress) -> None:
        super().__init__()
        self.recipe = recipe
        self.total = recipe.epochs * progress.steps
        self.done = progress.epoch * progress.steps + progress.step
        self._first_step = self.done
        self._bar = rich.progress.Progress(
            TextColumn(
                "{task.description} {task.percentage:3.0f}%", table_column=Column(no_wrap=True)
            ),
            BarColumn(12),
            TextColumn("{task.fields[numbers]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=self.total, completed=self.done, numbers="")
        self._start_time = self._epoch_start_time = self._updated_at = time.monotonic()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._bar.start()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start_time = time.monotonic()
        self._bar.update(self._task, description=f"Epoch {epoch + 1}/{self.recipe.epochs}")

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.done += 1
        now = time.monotonic()
        if self.done == self._first_step + 1:
            self._start_time = now  # the first step includes compilation
        terminal = self._bar.console.is_terminal
        # Reading the learning rate waits for the device.
        if now - self._updated_at < (_SECONDS_IN_A_TERMINAL if terminal else _SECONDS_IN_A_FILE):
            return
        self._updated_at = now
        numbers = self._numbers(now, logs or {})
        self._bar.update(self._task, completed=self.done, numbers=numbers)
        if not terminal:
            self._say(f"  step {self.done} of {self.total}: {numbers}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.monotonic() - self._epoch_start_time
        numbers = ", ".join(f"{name} {float(value):.4f}" for name, value in (logs or {}).items())
        self._say(f"Epoch {epoch + 1}/{self.recipe.epochs}: {numbers} ({seconds:.0f} s)")

    def close(self) -> None:
        """Stops the progress bar, even if the run was interrupted."""
        self._bar.stop()

    def _say(self, line: str) -> None:
        self._bar.console.print(line, highlight=False, soft_wrap=True)

    def _numbers(self, now: float, logs: dict[str, Any]) -> str:
        seconds = (now - self._start_time) / max(self.done - self._first_step - 1, 1)
        parts = []  # most important first: a narrow terminal truncates the line
        if seconds:
            remaining = datetime.timedelta(seconds=round((self.total - self.done) * seconds))
            parts = [f"{remaining} left", f"{self.recipe.batch_size / seconds:.1f} images/s"]
        parts += [f"{n} {float(v):.4f}" for n, v in logs.items() if n != "gradient_norm"]
        parts.append(f"learning rate {learning_rate(self.model.optimizer):.1e}")
        return ", ".join(parts)


class TensorBoard(keras.callbacks.TensorBoard):
    """TensorBoard callback that also logs the learning rate, even with `tf.distribute`."""

    def __init__(self, folder: str, profile: tuple[int, int] | None = None) -> None:
        if profile and not 1 <= profile[0] <= profile[1]:
            raise ValueError(
                "`profile` must be the first and last step to profile, counted from 1. "
                f"Received: profile={profile}"
            )
        super().__init__(folder, write_graph=False, profile_batch=profile or 0)

    def _collect_learning_rate(self, logs: dict[str, Any]) -> dict[str, Any]:
        return {**logs, "learning_rate": learning_rate(self.model.optimizer)}


class EpochClock(keras.callbacks.Callback):
    """Callback that writes the duration of every epoch to a CSV file.

    Columns: `epoch`, from 0 on; `steps`, the number of timed steps (after an interruption only the
    resumed steps); `training_seconds` of these steps; and `seconds`, with validation and saving.
    An epoch at whose end the run was stopped has no row.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start_time = self._last_step_time = time.monotonic()
        self._num_steps = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._last_step_time = time.monotonic()
        self._num_steps += 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        rows = [row for row in history.read_rows(self.path) if row["epoch"] < epoch]
        rows.append(
            {
                "epoch": epoch,
                "steps": self._num_steps,
                "training_seconds": self._last_step_time - self._start_time,
                "seconds": time.monotonic() - self._start_time,
            }
        )
        history.write_rows(self.path, rows)


def learning_rate(optimizer: keras.Optimizer) -> float:
    """Returns the learning rate that an optimizer will use in its next step."""
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def log_pictures(folder: str | os.PathLike[str], pictures: Mapping[str, Path]) -> None:
    """Adds PNG files to the TensorBoard logs."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for name, path in pictures.items():
            image = tf.io.decode_png(path.read_bytes(), channels=3)
            tf.summary.image(name, image[tf.newaxis], step=0)
    writer.close()
