"""Tasks by name."""

from __future__ import annotations

import importlib
from importlib import metadata

from keras_vit import arguments
from keras_vit.choices import TASKS
from keras_vit.tasks.task import Task

GROUP = "keras_vit.tasks"


def get(name: str) -> type[Task]:
    """Returns a task by name.

    Other packages add tasks by an entry point of the group `keras_vit.tasks`.

    Args:
        name: The name, such as `"classification"`.

    Returns:
        The class.

    Raises:
        ValueError: If there is none of this name.

    Example:
        >>> get("classification").monitor
        ('accuracy', 'max')
    """
    added = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    arguments.one_of("task", name, (*TASKS, *added))
    if name not in TASKS:
        return added[name].load()
    module, _, kind = TASKS[name].partition(":")
    return getattr(importlib.import_module(module), kind)
