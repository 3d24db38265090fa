from __future__ import annotations

import math
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.initial_loss import check_start
from keras_vit.training import Recipe, Run, RunConfig
from tests.doctor.conftest import DIGITS, alarms, change, only, solve, tiny_vit

pytestmark = pytest.mark.tensorflow


def run(folder: Path, losses: tuple[float, ...], loss: str = "softmax") -> Run:
    written = Run(folder)
    written.write_config(RunConfig("digits", "ViTMicro4", recipe=Recipe(loss=loss)), {})
    rows = [f"{epoch},{value}" for epoch, value in enumerate(losses)]
    written.history.write_text("\n".join(["epoch,loss", *rows]) + "\n")
    return written


def check(model: keras.Model, run: Run | None = None) -> list[Finding]:
    return check_start(DoctorContext(model, DIGITS, run=run))


def updated(model: keras.Model, updates: int) -> keras.Model:
    model.compile("sgd", "categorical_crossentropy")
    model.optimizer.iterations.assign(updates)
    return model


def test_a_trained_model_is_fine(healthy: DoctorContext) -> None:
    found = only(check_start(healthy))
    assert (found.name, found.severity) == ("loss", "fine")
    assert found.numbers["log_classes"] == math.log(10)
    assert found.numbers["loss"] < 0.5


@pytest.mark.slow
def test_a_new_classifier_is_fine() -> None:
    found = only(check(tiny_vit()))
    assert found.severity == "fine"
    assert found.numbers["loss"] == pytest.approx(math.log(10), abs=1e-5)
    assert "as with a new classifier." in found.evidence


def test_a_new_classifier_that_starts_too_large_is_found() -> None:
    model = solve()
    head = model.get_layer("head")
    change(head, 0, 3 * np.random.default_rng(0).normal(size=(83, 10)))
    found = only(check(model))
    assert (found.name, found.severity) == ("initial loss far from chance level", "warning")
    assert found.numbers["loss"] > 1.5 * math.log(10)
    change(head, 0, np.random.default_rng(0).normal(size=(83, 10)) / 30)
    change(head, 1, 0.0)
    assert alarms(check(model)) == {}


def test_one_answer_for_everything_is_found() -> None:
    model = solve()
    change(model.get_layer("head"), 1, 30.0, 3)
    found = only(check(model))
    assert (found.name, found.severity) == ("one class predicted for all images", "serious")
    assert found.numbers["share_of_most_frequent_answer"] == 1
    assert "are class 3" in found.evidence
    assert "do not depend on the image" in found.evidence


def test_one_answer_of_a_model_that_may_be_new_is_a_warning() -> None:
    model = solve()
    head = model.get_layer("head")
    change(head, 0, head.get_weights()[0] / 50)
    change(head, 1, 0.0)
    change(head, 1, 1.0, 3)  # a probability of a quarter
    assert only(check(model)).severity == "note"
    change(head, 1, 3.0, 3)  # of two thirds
    assert alarms(check(model)) == {"one class predicted for all images": "warning"}
    assert alarms(check(updated(model, 7))) == {"one class predicted for all images": "serious"}


def test_one_answer_is_right_where_there_is_one_class() -> None:
    model = solve()
    change(model.get_layer("head"), 1, 30.0, 3)
    threes = DIGITS.subset(np.flatnonzero(DIGITS.targets == 3))
    assert alarms(check_start(DoctorContext(model, threes))) == {}


@pytest.mark.parametrize(("updates", "severity"), [(7, "warning"), (2000, "serious")])
def test_training_that_taught_nothing_is_found(updates: int, severity: str) -> None:
    model = solve()
    random = np.random.default_rng(1)
    change(model.get_layer("head"), 0, random.normal(size=(83, 10)) / 10)
    assert alarms(check(model)) == {}  # it may be new
    findings = check(updated(model, updates))
    assert alarms(findings) == {"accuracy at chance level": severity}
    assert f"after {updates:,} steps" in findings[0].evidence


def test_a_run_that_taught_nothing_is_found(tmp_path: Path) -> None:
    assert alarms(check(tiny_vit(), run(tmp_path, (2.3, 2.3)))) == {
        "one class predicted for all images": "serious"
    }


def test_overconfidence_is_found() -> None:
    model = solve()
    head = model.get_layer("head")
    noise = np.random.default_rng(1).normal(size=(83, 10))
    change(head, 0, 30 * (head.get_weights()[0] + 0.7 * noise))
    found = only(check(model))
    assert (found.name, found.severity) == ("loss above chance level", "warning")
    assert found.numbers["accuracy"] > 0.3


def test_a_first_epoch_worse_than_guessing_is_found(tmp_path: Path) -> None:
    found = only(check(solve(), run(tmp_path, (3.5, 0.4))))
    assert (found.name, found.severity) == ("initial loss far from chance level", "warning")
    assert found.numbers["first_epoch"] == 3.5
    assert only(check(solve(), run(tmp_path, (3.4, 0.4)))).severity == "fine"  # 1.5 log(10) = 3.45
    # The mean of many yes-or-no losses has nothing to do with log K.
    assert only(check(solve(), run(tmp_path, (3.5, 0.4), "sigmoid"))).severity == "fine"
