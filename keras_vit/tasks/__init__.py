"""Tasks: what a model learns, how it is evaluated, and what is served."""

from keras_vit.tasks.evaluate import evaluate
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.registry import get
from keras_vit.tasks.task import Task

__all__ = ["Objective", "Task", "evaluate", "get"]
