"""Training tasks, such as classification, with their objectives, evaluation and serving."""

from keras_vit.tasks.evaluate import evaluate, evaluate_in_detail
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.registry import get
from keras_vit.tasks.task import Details, Task

__all__ = ["Details", "Objective", "Task", "evaluate", "evaluate_in_detail", "get"]
