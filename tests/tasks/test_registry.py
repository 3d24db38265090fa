from __future__ import annotations

from importlib import metadata

import pytest

from keras_vit import tasks
from keras_vit.choices import PRETRAINING_TASKS, TASK_GROUP, TASKS
from keras_vit.runs.config import PretrainConfig
from keras_vit.tasks.task import Task

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", [*TASKS, *PRETRAINING_TASKS])
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
        metadata, "entry_points", lambda group: [Entry()] if group == TASK_GROUP else []
    )
    assert tasks.get("depth") is Task
    with pytest.raises(
        ValueError, match=r"`task` must be one of .* Did you mean 'depth'\? .*'depth'"
    ):
        tasks.get("dpeth")
