from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.distillation import DistillationObjective, Teacher, load_teacher
from keras_vit.training import Recipe
from keras_vit.training.optimizers import build_optimizer
from tests.helpers import in_training, numpy, randomise
from tests.training.conftest import save_teacher

NAMES = ("a", "b", "c")
STUDENT = Preprocessing(size=(8, 8), class_names=NAMES)


def student(distilled: bool = False) -> keras.Model:
    config = models.size("Micro/4").replace(
        **{"hidden_size": 10, "num_layers": 1, "num_heads": 2, "mlp_dim": 13},
        **{"image_size": (8, 8), "classes": 3, "classifier_activation": None},
        distillation_token=distilled,
        distillation_head=distilled,
    )
    return randomise(models.build(config, preprocessing=STUDENT))


@pytest.fixture
def teacher(tmp_path: Path) -> Teacher:
    return load_teacher(save_teacher(tmp_path / "teacher.keras", NAMES), STUDENT)


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    images = rng.uniform(-1, 1, (5, 8, 8, 3)).astype("float32")
    return images, np.eye(3, dtype="float32")[[0, 1, 2, 2, 1]]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def cross_entropy(target: np.ndarray, logits: np.ndarray) -> np.ndarray:
    return -(target * np.log(softmax(logits))).sum(axis=-1)


@pytest.mark.parametrize("distilled", [False, True])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_loss_is_the_paper_s(teacher: Teacher, distilled: bool, kind: str) -> None:
    network = student(distilled)
    images, labels = batch()
    objective = DistillationObjective(network, teacher, kind=kind, weight=0.3, temperature=2.0)
    losses, outputs = objective.example_losses(images, labels, training=True)
    names = ["head", "distillation_head"] if distilled else ["head"]
    heads = keras.Model(network.inputs[0], [network.get_layer(n).output for n in names])
    answers = [numpy(a) for a in keras.tree.flatten(heads(images))]
    logits, taught = answers[0], answers[-1]
    told = numpy(teacher(images))
    if kind == "hard":
        lesson = cross_entropy(np.eye(3)[told.argmax(axis=-1)], taught)
    else:
        soft = softmax(np.log(told) / 2)
        lesson = 4 * (soft * (np.log(soft) - np.log(softmax(taught / 2)))).sum(axis=-1)
    expected = 0.7 * cross_entropy(labels, logits) + 0.3 * lesson
    np.testing.assert_allclose(numpy(losses), expected, rtol=1e-4)
    np.testing.assert_allclose(numpy(outputs), (logits + taught) / 2, rtol=1e-5)


def test_validation_is_without_the_teacher(teacher: Teacher) -> None:
    images, labels = batch()
    objective = DistillationObjective(student(True), teacher)
    losses, outputs = objective.example_losses(images, labels, training=False)
    np.testing.assert_allclose(numpy(losses), cross_entropy(labels, numpy(outputs)), rtol=1e-5)


def test_teacher_sees_its_own_scaling(tmp_path: Path) -> None:
    path = save_teacher(tmp_path / "teacher.keras", NAMES)
    model = keras.saving.load_model(path)
    pixels = np.random.default_rng(5).uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    answers = Teacher(model, STUDENT)(STUDENT.scale(pixels))
    expected = model(models.preprocessing_of(model).scale(pixels))
    np.testing.assert_allclose(numpy(answers), numpy(expected), atol=1e-5)


def test_teacher_of_another_size_sees_resized_images(tmp_path: Path) -> None:
    path = save_teacher(tmp_path / "teacher.keras", NAMES)
    large = Preprocessing(size=(16, 16), class_names=NAMES)
    flat = np.full((2, 16, 16, 3), 0.25, "float32")
    answers = load_teacher(path, large)(flat)
    expected = load_teacher(path, STUDENT)(flat[:, :8, :8])
    np.testing.assert_allclose(numpy(answers), numpy(expected), atol=1e-5)


@pytest.mark.slow
def test_teacher_does_not_change_and_the_student_learns(teacher: Teacher) -> None:
    network = student()
    training_model = in_training(DistillationObjective, network, teacher, kind="soft", weight=1.0)
    recipe = Recipe(learning_rate=0.03, warmup_fraction=0.0, decay="constant", weight_decay=0)
    training_model.compile(optimizer=build_optimizer(recipe, network, 100))
    before = [numpy(v) for v in teacher.variables]
    images, labels = batch()
    losses = []
    for _ in range(30):
        training_model.reset_metrics()
        losses.append(training_model.train_on_batch(images, labels, return_dict=True)["loss"])
    assert losses[-1] < 0.2 * losses[0]
    for old, new in zip(before, teacher.variables, strict=True):
        np.testing.assert_array_equal(old, numpy(new))
    theirs = {id(v) for v in teacher.variables}
    assert theirs
    assert not any(id(v) in theirs for v in training_model.objective.state)
    assert len(training_model.trainable_variables) == len(network.trainable_variables)


def test_any_keras_model_can_teach() -> None:
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
    )
    images, _ = batch()
    np.testing.assert_allclose(
        numpy(Teacher(model, STUDENT)(images)), numpy(model(images)), atol=1e-6
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b"), "one probability for each class of the student. Received: outputs of .*2"),
        (("b", "a", "c"), r"have the classes of the student, in the same order. .*'b', 'a', 'c'"),
    ],
)
def test_teacher_of_other_classes_is_refused(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_teacher(save_teacher(tmp_path / "teacher.keras", names), STUDENT)


def test_missing_teacher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`teacher` must be a run folder or a \.keras file"):
        load_teacher(tmp_path / "none", STUDENT)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"kind": "warm"}, "`kind` must be one of"), ({"temperature": 0}, "`temperature` must be")],
)
def test_settings_are_checked(teacher: Teacher, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DistillationObjective(student(), teacher, **settings)


def test_teacher_that_says_yes_or_no_is_refused(tmp_path: Path) -> None:
    taught = keras.saving.load_model(save_teacher(tmp_path / "teacher.keras", NAMES))
    several = models.rebuild(taught, classifier_activation="sigmoid")
    with pytest.raises(
        ValueError, match=r"mutually exclusive classes. .*teacher='vit', which ends"
    ):
        Teacher(several, STUDENT)


def test_weight_is_checked(teacher: Teacher) -> None:
    with pytest.raises(ValueError, match=r"`weight` must be in \[0, 1\]. Received: weight=2"):
        DistillationObjective(student(), teacher, weight=2)
