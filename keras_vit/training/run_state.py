"""State of a training run: progress, saved models, history and the states to resume from."""

from __future__ import annotations

import math
import shutil
import time
from typing import Any

import keras
import numpy as np

from keras_vit import arguments, files
from keras_vit.models.lora import merged_weights
from keras_vit.runs import history
from keras_vit.runs.run_folder import RunFolder
from keras_vit.runs.state_files import Progress, StateFiles
from keras_vit.tasks.task import Task
from keras_vit.training.distribution import Devices
from keras_vit.training.ema import assign, averages
from keras_vit.training.training_model import TrainingModel
from keras_vit.weights.adapters import save_adapter


class RunState:
    """Progress of a run, and the files in which the run saves it.

    A resumed run ends with weights bit-identical to those of an uninterrupted run. Writes are
    atomic, and only the chief of several workers writes.
    """

    def __init__(
        self, run: RunFolder, model: TrainingModel, task: Task, devices: Devices, steps: int
    ) -> None:
        self.run = run
        self.training_model = model
        self.task = task
        self.devices = devices
        self.steps = steps
        self.checkpoints = StateFiles(run.checkpoints, task.config.keep)
        self.progress = Progress(steps=steps)
        self.logs: dict[str, Any] = {}  # of the last step: means over the epoch
        self._inference_model: keras.Model | None = None
        self._metrics: list[np.ndarray] | None = None
        self._saved_at = time.monotonic()

    def end_epoch(self, metrics: dict[str, float]) -> None:
        """Adds an epoch to the progress, and saves the models, the state and the history.

        The state is saved before the history, which it also contains.
        """
        epoch = self.progress.epoch
        rows = (*self.progress.history, {"epoch": epoch, **metrics})
        self.progress = Progress(epoch=epoch + 1, steps=self.steps, history=rows)
        values = self._values()
        self.save_models(best=self.task.monitor is not None and self._epochs_since_best == 0)
        self._write(values)
        self.write_history()

    def restore_metrics(self) -> None:
        """Restores the metrics of an interrupted epoch, which `fit` resets when it begins."""
        if self._metrics is not None:
            assign(self.training_model.metrics_variables, self._metrics)
            self._metrics = None

    @property
    def stopped_early(self) -> bool:
        """True if the validation result has not improved for `early_stopping` epochs."""
        return 0 < self.task.config.recipe.early_stopping <= self._epochs_since_best

    @property
    def _epochs_since_best(self) -> int:
        """Number of complete epochs after the best epoch."""
        results = [self._result(row) for row in reversed(self.progress.history)]
        return max(range(len(results)), key=lambda i: (results[i], i), default=0)

    def due(self, step: int) -> bool:
        """True if a state within the epoch is to be saved after a step."""
        config = self.task.config
        if config.save_steps:
            return step % config.save_steps == 0
        if self.devices.workers > 1:
            return False  # clocks of several workers differ
        minutes = (time.monotonic() - self._saved_at) / 60
        return bool(config.save_minutes) and minutes >= config.save_minutes

    def how_to_resume(self) -> str:
        """Returns the command that resumes the run."""
        return (
            f"{self.run.path} contains the last saved state of this run. Resume with:\n  "
            f"{arguments.command(self.task.command, '--resume', '--out', self.run.path)}"
        )

    def save_models(self, best: bool) -> None:
        """Saves the current model as the last model and, if `best` is True, also as the best."""
        if self._inference_model is None:
            self._inference_model = self.task.inference_model(self.training_model.network)
        average = averages(self.training_model.optimizer)
        values = {} if average is None else {
            id(v): a for v, a in zip(self.training_model.trainable_variables, average, strict=True)
        }  # fmt: skip
        self._inference_model.set_weights(merged_weights(self.training_model.network, values))
        if not self.devices.is_chief:
            return
        if self.task.config.recipe.lora_rank:
            save_adapter(self.training_model.objective, self.run.path / "adapter.npz", values)
        with files.atomic_path(self.run.last) as temporary:
            self._inference_model.save(temporary)
        if best:
            files.copy(self.run.last, self.run.best)

    def save(self) -> None:
        """Saves the complete training state."""
        self._write(self._values())

    def restore(self) -> None:
        """Restores the model, optimizer, metrics and progress from the newest saved state.

        A run that was stopped before its first state was saved starts from the beginning.
        """
        run, new_run = self.run, "Start a new run"
        if self.task.unnamed:  # layers for other tasks cannot be left out
            new_run += f", with --weights {run.last} to continue from the weights of this run"
        if self.devices.is_chief:
            for path in (run.last, run.best, run.history):
                for leftover in run.path.glob(f".{path.name}.*"):
                    shutil.rmtree(leftover, ignore_errors=True)
        if not self.checkpoints.paths():
            if run.history.exists():  # written after a state
                raise ValueError(
                    f"`--resume` needs a saved state in {run.checkpoints}. {new_run}. Received: "
                    f"out={str(run.path)!r}, which has no saved states"
                )
            print(f"{run.path} was stopped before its first saved state: training restarts.")
            return
        progress, state = self.checkpoints.load()
        if progress.steps != self.steps:
            batch_size = self.task.config.recipe.batch_size
            rule = f"{run.config} must have the batch size that the run was started with"
            if run.resolved().get("training_examples", 0) // batch_size == progress.steps:
                rule = f"`data` must keep images for {progress.steps} steps per epoch; restore them"
            raise ValueError(
                f"{rule}. Received: {self.steps} steps per epoch instead of {progress.steps}"
            )
        variables = self._variables()
        mismatches = sorted(
            {n for n, v in variables.items() if n not in state or state[n].shape != tuple(v.shape)}
            | (state.keys() - variables.keys())
        )
        if mismatches:
            raise ValueError(
                f"{run.checkpoints} must contain states of this run's model and optimizer. "
                f"{new_run}. Received: {len(mismatches)} variables that do not fit, such as "
                f"{mismatches[:5]}"
            )
        for name, variable in variables.items():
            if not name.startswith("metrics/"):
                variable.assign(state[name])
        self.progress = progress
        self._metrics = None
        if progress.step:
            self._metrics = [state[name] for name in variables if name.startswith("metrics/")]
        self.write_history()

    def write_history(self) -> None:
        """Writes the metrics of every epoch to the history file."""
        if self.devices.is_chief and self.progress.history:
            history.write_rows(self.run.history, self.progress.history)

    def require_finite(self, step: int, logs: dict[str, Any]) -> None:
        """Raises `FloatingPointError` if a metric of a step is not finite."""
        numbers = {name: float(value) for name, value in logs.items()}
        if bad := [name for name, value in numbers.items() if not math.isfinite(value)]:
            raise FloatingPointError(
                f"NaN or infinite {' and '.join(bad)} in epoch {self.progress.epoch + 1}, step "
                f"{step}. The last good state is kept in {self.run.path}. Start a new run in "
                "another folder with a lower learning rate (--learning-rate), gradient clipping "
                f"(--set clip_norm=1) or --precision float32. Received: {numbers}"
            )

    def _values(self) -> dict[str, np.ndarray]:
        """Returns all values of the training state by name."""
        if keras.backend.backend() == "jax":
            self.training_model.jax_state_sync()
        # On every worker, as metrics are summed over all workers.
        state = {n: keras.ops.convert_to_numpy(v) for n, v in self._variables().items()}
        bad = [name for name, value in state.items() if name.startswith("model/")
               and not np.all(np.isfinite(value))]  # fmt: skip
        if bad:
            raise FloatingPointError(
                f"{len(bad)} variables contain NaN or infinity, so nothing is saved. The last "
                f"good state is kept in {self.run.path}. Lower the learning rate."
            )
        return state

    def _write(self, state: dict[str, np.ndarray]) -> None:
        self._saved_at = time.monotonic()
        if self.devices.is_chief:
            steps = self.progress.epoch * self.steps + self.progress.step
            self.checkpoints.save(steps, self.progress, state)

    def _result(self, row: dict[str, float]) -> tuple[float, ...]:
        """Returns the values to maximize: the monitored metric, and for ties the negative loss."""
        values = []
        for name, mode in (self.task.monitor or ("loss", "min"), ("loss", "min")):
            value = row.get(f"val_{name}", np.nan) * (1 if mode == "max" else -1)
            values.append(-np.inf if np.isnan(value) else value)
        return tuple(values)

    def _variables(self) -> dict[str, keras.Variable]:
        """Returns all weights, dropout seeds, optimizer variables and metric variables by name."""
        training_model = self.training_model
        groups = {
            "model": training_model.objective.state,
            "optimizer": training_model.optimizer.variables,
            "metrics": training_model.metrics_variables,
        }
        return {f"{g}/{i}": v for g, variables in groups.items() for i, v in enumerate(variables)}
