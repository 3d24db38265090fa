from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit import data, tasks
from keras_vit.choices import TASKS
from keras_vit.runs.config import PretrainConfig, RunConfig
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.task import Task

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", TASKS)
def test_built_in_task_has_its_name(name: str) -> None:
    assert tasks.get(name).name == name


@pytest.mark.parametrize("method", ["mae", "masked-patches"])
def test_configuration_of_a_pretraining_names_its_task(method: str) -> None:
    assert (
        tasks.get(PretrainConfig("photos", "ViTMicro4", method=method).task).command == "pretrain"
    )


def test_task_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "depth"

        def load(self) -> type[Task]:
            return Task

    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [Entry()] if group == tasks.GROUP else []
    )
    assert tasks.get("depth") is Task
    with pytest.raises(ValueError, match=r"`task` must be one of .*'depth'.* Did you mean 'depth'"):
        tasks.get("dpeth")


def test_defaults_decide_nothing(tmp_path: Path) -> None:
    class Plain(Task):
        name = "plain"

    task: Any = Plain(RunConfig("digits", "ViTMicro4"))
    digits = data.load("digits").subset(range(20))
    assert task.adapted(digits) is task
    assert len(task.load()) == 1797
    half = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3, dtype="mixed_bfloat16")], name="half"
    )
    assert task.finished_model(half).layers[-1].compute_dtype == "float32"
    assert task.evaluate(half, digits) is None
    assert task.draw_training(Run(tmp_path), None, digits) == {}
    assert task.next_commands(Run("runs/a")) == ["keras-vit export runs/a --to runs/a/serving"]
    assert task.title(digits, 16) == "Training ViTMicro4 (plain) on 16 images"
