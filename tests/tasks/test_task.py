from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit import data, tasks
from keras_vit.runs.config import RunConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.tasks.run_data import Run
from keras_vit.tasks.task import Task

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_defaults_decide_nothing(tmp_path: Path) -> None:
    class Plain(Task):
        name = "plain"

    task: Any = Plain(RunConfig("digits", "ViTMicro4"))
    digits = data.load("digits").subset(range(20))
    assert type(Task.settled(task.config, digits)) is Task
    assert len(task.load("digits")) == 1797
    half = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3, dtype="mixed_bfloat16")], name="half"
    )
    assert task.inference_model(half).layers[-1].compute_dtype == "float32"
    assert task.monitor is None
    assert not task.has_scores()
    assert type("Scored", (Plain,), {"score": lambda self, predictions: None}).has_scores()
    names = ("classification", "multi_label", "regression", "segmentation", "masked_patches")
    assert [tasks.get(name).has_scores() for name in names] == [True] * 4 + [False]
    assert task.draw_training(Run(tmp_path), None, digits) == {}
    assert task.next_commands(Run("runs/a")) == ["keras-vit export runs/a --to runs/a/serving"]
    assert task.title(digits, 16) == "Training ViTMicro4 (plain) on 16 images"


@pytest.mark.parametrize(
    ("task", "field", "value"),
    [
        *((task, "distillation", "soft") for task in ("segmentation", "detection", "regression")),
        ("regression", "class_weights", "balanced"),
        ("regression", "loss", "sigmoid"),
    ],
)
def test_fields_that_a_task_does_not_use_are_refused(task: str, field: str, value: Any) -> None:
    teacher = "x" if field == "distillation" else None
    config = RunConfig("photos", "ViTTi16", teacher=teacher, recipe=Recipe(**{field: value}))
    with pytest.raises(ValueError, match=f"`{field}` must be '.*' with the task {task}. Received"):
        tasks.get(task)(config)
    tasks.get("classification")(config)
