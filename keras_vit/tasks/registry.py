"""Registry of all tasks, including tasks from other packages, by name."""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any

import keras

from keras_vit import arguments
from keras_vit.choices import PRETRAINING_TASKS, TASK_GROUP, TASKS
from keras_vit.data import Examples
from keras_vit.data.decode_and_resize import scale
from keras_vit.models import preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.task import Task


def get(name: str) -> type[Task]:
    """Returns the class of a task by name.

    Other packages can add tasks with an entry point in the group `keras_vit.tasks`.

    Args:
        name: The name, such as `"classification"`.

    Returns:
        The class.

    Raises:
        ValueError: If there is no task of this name.

    Examples:
        >>> get("classification").monitor
        ('accuracy', 'max')
    """
    tasks = (TASKS | PRETRAINING_TASKS).items()
    built_in = [metadata.EntryPoint(name, value, TASK_GROUP) for name, value in tasks]
    external = metadata.entry_points(group=TASK_GROUP)
    entry_points = {entry.name: entry for entry in (*external, *built_in)}
    arguments.one_of("task", name, tuple(entry_points))
    return entry_points[name].load()


def task_of(preprocessing: Preprocessing, examples: Examples | None = None) -> Task:
    """Returns the task of a model, given its stored preprocessing and the images to evaluate."""
    multi_label = preprocessing.thresholds if examples is None else examples.multi_label
    return get(preprocessing.task or ("multi_label" if multi_label else "classification"))(None)


def check_command(command: str, preprocessing: Preprocessing) -> Task:
    """Returns the task of a model; raises `ValueError` if a command does not apply to it."""
    task = task_of(preprocessing)
    if reason := task.refusal(command):
        raise ValueError(
            f"`keras-vit {command}` must be used with a classifier: {reason}. Received: a model "
            f"of the task {task.name}"
        )
    return task


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model for prediction and export.

    Args:
        task: Its task.
        network: Its network in float32, with the last activation.
        preprocessing: Its complete preprocessing.
    """

    task: Task
    network: keras.Model
    preprocessing: Preprocessing

    def outputs(self, pixels: Any) -> dict[str, Any]:
        """Computes the outputs by name for pixels (B, h, w, C) in [0, 255] at the model's size."""
        output = self.network(scale(pixels, self.preprocessing), training=False)
        further = self.task.further_outputs(self.network, output, self.preprocessing)
        return {self.task.output: output, **further}


def trained_model(model: keras.Model) -> TrainedModel:
    """Prepares a trained model for prediction and export."""
    task = task_of(preprocessing_of(model))
    return TrainedModel(task, *task.prediction_network(model))
