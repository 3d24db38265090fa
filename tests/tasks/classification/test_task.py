from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from keras_vit import data
from keras_vit.tasks.classification.distillation import DistillationObjective
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.tasks.classification.task import Classification
from keras_vit.tasks.multi_label.task import MultiLabel
from keras_vit.training import Recipe, RunConfig
from tests.training.conftest import save_teacher

pytestmark = pytest.mark.tensorflow

SMALL = Recipe(image_size=(8, 8), precision="float32")


def test_balanced_weights_of_a_class_without_images_are_zero(nano: str) -> None:
    digits = data.load("digits")
    training = digits.subset(np.flatnonzero(digits.targets < 3)[:30])
    config = RunConfig("digits", nano, recipe=SMALL.replace(class_weights="balanced"))
    task = Classification(config)
    objective = task.objective(build_network(config, digits.class_names), training)
    found = objective.class_weights
    counts = np.bincount(training.targets)
    np.testing.assert_allclose(found[:3], 30 / (3 * counts), rtol=1e-6)
    assert not np.any(found[3:])


def test_teacher_makes_a_distilled_classifier(nano: str, tmp_path: Path) -> None:
    names = tuple(map(str, range(10)))
    recipe = SMALL.replace(distillation="soft", distillation_weight=0.3)
    teacher = save_teacher(tmp_path / "teacher.keras", names)
    config = RunConfig("digits", nano, teacher=str(teacher), recipe=recipe)
    digits = data.load("digits")
    task = Classification(config)
    network = task.build_network(digits, "float32", resume=False)
    objective = task.objective(network, digits)
    assert isinstance(objective, DistillationObjective)
    assert (objective.kind, objective.weight) == ("soft", 0.3)
    plain = RunConfig("digits", nano, recipe=SMALL)
    assert type(Classification(plain).objective(network, digits)) is ClassificationObjective


def test_balanced_weights_of_several_labels(nano: str) -> None:
    digits = data.load("digits").subset(range(7))
    labels = [[1, 0, 1, 1]] * 2 + [[0, 0, 1, 1]] * 3 + [[0, 0, 1, 0]] * 2
    training = dataclasses.replace(digits, targets=np.array(labels), class_names=tuple("abcd"))
    config = RunConfig("digits", nano, recipe=SMALL.replace(class_weights="balanced"))
    task = MultiLabel(config)
    network = build_network(config, tuple("abcd"), multi_label=True)
    objective = task.objective(network, training)
    assert objective.multi_label
    # Shown by 2, 0, 7 and 5 of 7; where one of both never happens nothing can be balanced.
    np.testing.assert_allclose(objective.class_weights, [5 / 2, 1, 1, 2 / 5])
