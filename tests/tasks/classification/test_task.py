from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.distillation import DistillationObjective
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.classification.ridge_head import fit_ridge
from keras_vit.tasks.classification.task import Classification, set_temperature
from keras_vit.tasks.multi_label.task import MultiLabel
from keras_vit.training import Recipe, RunConfig
from keras_vit.weights.whole_models import load_model
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


@pytest.mark.parametrize("distilled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_temperature_becomes_part_of_the_saved_model(distilled: bool, tmp_path: Path) -> None:
    digits = data.load("digits").subset(range(150))
    config = models.size("Micro/4").replace(
        **{"num_layers": 1, "hidden_size": 12, "num_heads": 2, "mlp_dim": 17},
        **{"image_size": (8, 8), "classes": 10},
        distillation_token=distilled,
        distillation_head=distilled,
    )
    preprocessing = Preprocessing(size=(8, 8), class_names=digits.class_names)
    model = models.build(config, preprocessing=preprocessing)
    fitted = fit_ridge(models.features(model, digits), digits.targets, 10)
    for name in ("head", "distillation_head")[: 1 + distilled]:
        model.get_layer(name).set_weights([3 * fitted.kernel, 3 * fitted.bias])  # overconfident
    model.save(tmp_path / "model.keras")
    before = predict(model, digits, verbose=0)
    found = set_temperature(tmp_path / "model.keras", digits)
    saved = predict(load_model(tmp_path / "model.keras"), digits, verbose=0)
    # 2e-5: the temperature is applied to probabilities of at least 1e-12.
    np.testing.assert_allclose(saved.outputs, found.outputs, atol=1e-4)
    assert (saved.outputs.argmax(axis=1) == before.outputs.argmax(axis=1)).all()
    losses = [-np.log(one.outputs[np.arange(150), one.targets]).mean() for one in (before, saved)]
    assert losses[1] < losses[0] - 0.01
    content = (tmp_path / "model.keras").read_bytes()
    set_temperature(tmp_path / "model.keras", digits)
    assert (tmp_path / "model.keras").read_bytes() == content


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
