"""Worker that trains and measures one model of a comparison in a separate process.

In a separate process, the peak memory is due to one model only, and no model slows down the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import files
from keras_vit.escapes import say
from keras_vit.reports import cost
from keras_vit.runs import history
from keras_vit.runs.config import write_config
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.registry import get
from keras_vit.tasks.task import numbers
from keras_vit.training import Run, RunConfig, read_config, train

CONFIG, COST, PREDICTIONS, RUN = "config.yaml", "cost.json", "predictions.npz", "run"
_IN_A_PROCESS = (
    "import sys, keras_vit_toolkit; keras_vit_toolkit.register_package(); "
    "from keras_vit.startup import start_keras; start_keras(); "
    "from keras_vit.reports import comparison_worker; comparison_worker.main(*sys.argv[1:])"
)
_STOPPED = 130  # exit status of a command interrupted by Ctrl-C


@dataclasses.dataclass(frozen=True, eq=False)
class ModelResult:
    """Measurements of one model in a comparison.

    Args:
        name: Name given by the user.
        start: Initial weights; None for random weights.
        names: Names of the validation images.
        labels: True classes of the images, (N,).
        probabilities: Predicted probabilities, (N, K).
        class_names: Name of each class.
        history: Elapsed minutes and validation metric after every epoch; NaN minutes in a run
            without recorded times.
        parameters: Number of parameters.
        flops: Floating-point operations per image; None if unknown.
        peak_memory: Peak host memory of the training, in bytes; None if unknown, as in an existing
            run or after an interruption.
        training_minutes: Minutes of all epochs with validation; None if unknown.
        training_speed: Images per second of training in the fastest epoch after the first, which
            includes compilation; None if unknown, as in a run of one epoch.
        inference_speed: Images per second of `predict`.
        scores: Numbers of the evaluation result, for tasks other than classification.
    """

    name: str
    start: str | None
    names: tuple[str, ...]
    labels: np.ndarray
    probabilities: np.ndarray
    class_names: tuple[str, ...]
    history: tuple[tuple[float, float], ...]
    parameters: int
    flops: int | None
    peak_memory: int | None
    training_minutes: float | None
    training_speed: float | None
    inference_speed: float
    scores: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def predicted(self) -> np.ndarray:
        """The predicted class indices, of shape (N,)."""
        return self.probabilities.argmax(axis=1)

    def minutes_to(self, accuracy: float) -> float | None:
        """Returns the minutes of training until a validation accuracy was reached, or None."""
        return next((minutes for minutes, value in self.history if value >= accuracy), None)


def run_model(name: str, config: RunConfig, folder: Path) -> ModelResult:
    """Trains and measures a model in a separate process, or reads its earlier results."""
    path = folder / CONFIG
    if path.is_file() and read_config(path) != config:
        raise ValueError(
            f"`out` must be a new folder, or the folder of the same comparison. Received: {folder} "
            f"with a different configuration in {CONFIG}. Remove the folder to train {name} again."
        )
    if not (folder / COST).is_file():
        write_config(path, config)
        _in_a_process(name, folder)
    return _read(name, Run(folder / RUN), folder)


def measure_run(name: str, run: Run, folder: Path) -> ModelResult:
    """Measures the model of a complete run in a separate process."""
    run.require_complete()
    _in_a_process(name, folder, run.path.resolve())
    return _read(name, run, folder)


def main(folder: str, run: str | None = None) -> None:
    """Measures the model of `run`, or else of a new run with the `config.yaml` in `folder`."""
    path, memory = Path(folder), None
    measured = Run(run or path / RUN)
    try:
        if run is None:
            resumed = measured.config.is_file()
            train(read_config(path / CONFIG), measured.path, resume=resumed, tensorboard=False)
            memory = None if resumed else cost.peak_memory()
        _measure(measured, path, memory)
    except KeyboardInterrupt as interrupt:
        print(f"\n{interrupt}")
        sys.exit(_STOPPED)
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
        say(f"keras-vit: {error}", sys.stderr)
        sys.exit(1)


def _in_a_process(name: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-c", _IN_A_PROCESS, *map(str, arguments)]
    stderr = None  # this process's stderr, which may be a terminal, bypassing `quiet_tensorflow`
    with contextlib.suppress(AttributeError, OSError):
        stderr = sys.stderr.fileno()
    with subprocess.Popen(command, stderr=stderr) as process:
        status = _wait(process)
    if status in (_STOPPED, -signal.SIGINT):
        raise KeyboardInterrupt(f"{name} was stopped. Run the same command again to resume.")
    if status:
        raise ValueError(
            f"The process of {name} ended with status {status}; see its output above. Run the "
            "same command again to resume from the last saved state."
        )


def _wait(process: subprocess.Popen) -> int:
    """Waits for a process to save its state and end, even after Ctrl-C or SIGTERM."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = in_main_thread and signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            # Ctrl-C interrupts both processes; the child then saves its state.
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, previous)


def _measure(run: Run, folder: Path, memory: int | None) -> None:
    config = run.read_config()
    held_out = run.examples()
    model = run.model()
    task, scores = get(config.task)(config), {}
    if task.name == "classification":
        labels, probabilities, preprocessing = predict(model, held_out, verbose=0)
        class_names = preprocessing.class_names
    else:
        scores = numbers(task.evaluate(model, held_out).result.to_json())
        labels, probabilities, class_names = np.zeros(0, int), np.zeros((0, 0)), ()
    with files.atomic_path(folder / PREDICTIONS) as temporary:
        np.savez_compressed(
            temporary,
            names=np.array(held_out.names),
            labels=labels,
            probabilities=probabilities,
            class_names=np.array(class_names, str),
        )
    costs: dict[str, Any] = {
        "parameters": model.count_params(),
        "flops": cost.flops(model),
        "peak_memory": memory,
        "training_minutes": sum(_minutes(run, config.recipe.batch_size).values()) or None,
        "training_images_per_second": _training_speed(run, config.recipe.batch_size),
        "inference_images_per_second": cost.inference_speed(model),
        "scores": scores,
    }
    files.write_json(folder / COST, costs)  # last, because this file marks the folder as complete


def _read(name: str, run: Run, folder: Path) -> ModelResult:
    config = run.read_config()
    costs = json.loads((folder / COST).read_text(encoding="utf-8"))
    with np.load(folder / PREDICTIONS) as stored:
        predictions = {key: stored[key] for key in stored.files}
    metric, _ = get(config.task).monitor or ("loss", "")
    values = {int(row["epoch"]): row[f"val_{metric}"] for row in history.read_rows(run.history)}
    known_minutes = _minutes(run, config.recipe.batch_size)
    minutes = np.cumsum([known_minutes.get(epoch, math.nan) for epoch in values])
    return ModelResult(
        name=name,
        start=config.weights and (Path(config.weights).name or config.weights),
        names=tuple(predictions["names"].tolist()),
        labels=predictions["labels"],
        probabilities=predictions["probabilities"],
        class_names=tuple(predictions["class_names"].tolist()),
        history=tuple(zip(minutes.tolist(), values.values(), strict=True)),
        training_speed=costs.pop("training_images_per_second"),
        inference_speed=costs.pop("inference_images_per_second"),
        **costs,
    )


def _training_speed(run: Run, batch_size: int) -> float | None:
    """Returns the images per second of the fastest epoch after the first, or None."""
    times = [row for row in history.read_rows(run.times)[1:] if row["steps"]]
    return max((batch_size * r["steps"] / r["training_seconds"] for r in times), default=None)


def _minutes(run: Run, batch_size: int) -> dict[int, float]:
    """Returns each epoch's duration in minutes; partially timed epochs are extrapolated."""
    times = [row for row in history.read_rows(run.times) if row["steps"]]
    if not times:
        return {}
    steps = run.resolved().get("training_examples", 0) // batch_size
    steps = max(steps, *(row["steps"] for row in times))
    minutes = {
        int(r["epoch"]): (r["seconds"] + (steps / r["steps"] - 1) * r["training_seconds"]) / 60
        for r in times
    }
    # An epoch has no time if the run was stopped at its end.
    mean = sum(minutes.values()) / len(minutes)
    epochs = max(max(minutes) + 1, len(history.read_rows(run.history)))
    return {epoch: minutes.get(epoch, mean) for epoch in range(epochs)}
