"""Registry of all tasks, including tasks from other packages, by name."""

from __future__ import annotations

import importlib
from importlib import metadata

import keras

from keras_vit import arguments
from keras_vit.choices import PRETRAINING_TASKS, TASK_GROUP, TASKS
from keras_vit.data import Examples
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
    added = {entry.name: entry for entry in metadata.entry_points(group=TASK_GROUP)}
    built_in = {**TASKS, **PRETRAINING_TASKS}
    arguments.one_of("task", name, (*built_in, *added))
    if name not in built_in:
        return added[name].load()
    module, _, kind = built_in[name].partition(":")
    return getattr(importlib.import_module(module), kind)


def of(preprocessing: Preprocessing, examples: Examples | None = None) -> Task:
    """Returns the task of a model, given its stored preprocessing and the images to evaluate."""
    several = preprocessing.thresholds if examples is None else examples.multi_label
    return get(preprocessing.task or ("multi_label" if several else "classification"))(None)


def check_command(command: str, preprocessing: Preprocessing) -> Task:
    """Returns the task of a model; raises `ValueError` if a command does not apply to it."""
    task = of(preprocessing)
    if reason := task.refusal(command):
        raise ValueError(
            f"`keras-vit {command}` must be used with a classifier: {reason}. Received: a model "
            f"of the task {task.name}"
        )
    return task


def finished(model: keras.Model) -> tuple[Task, keras.Model, Preprocessing]:
    """Returns a model's task, its float32 network and its complete preprocessing."""
    task = of(preprocessing_of(model))
    return task, *task.finished(model)
