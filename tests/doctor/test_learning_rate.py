from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.doctor import learning_rate
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.learning_rate import check_learning_rate, judge, rate_of
from keras_vit.doctor.lr_range_test import Curve
from keras_vit.training import Recipe, Run, RunConfig
from keras_vit.training.schedules import WarmupDecay
from tests.doctor.conftest import DIGITS, change, only, solve, tiny_vit

pytestmark = pytest.mark.tensorflow

FEW = DIGITS.subset(range(100))
# Falls from 1e-2 on, after a way of 0.0111; lowest at 1; rises from 10 on.
CURVE = Curve(10.0 ** np.arange(-4, 3), np.array([1, 1, 0.9, 0.6, 0.3, 0.9, 5]))


def check(model: keras.Model, **options: object) -> Finding:
    return only(check_learning_rate(DoctorContext(model, FEW, **options)))


@pytest.mark.parametrize(
    ("rate", "steps", "name", "severity"),
    [
        (10.0, None, "learning rate too high", "serious"),
        (9.0, None, "learning rate", "fine"),
        (1e4, None, "learning rate too high", "serious"),
        (1e-3, 200, "learning rate", "fine"),  # 12 steps to fall
        (1e-3, 100, "learning rate too low", "warning"),
        (1e-3, 10, "learning rate too low", "serious"),
        (2e-2, 5, "learning rate", "fine"),  # among those advised: the steps are few, not it small
        (1e-5, None, "learning rate", "fine"),  # 1110 steps
        (5e-6, None, "learning rate too low", "warning"),
        (5e-7, None, "learning rate too low", "serious"),
        (0.0, None, "learning rate too low", "serious"),
        (None, None, "learning rate", "note"),
    ],
)
def test_rates_are_compared_with_the_curve(
    rate: float | None, steps: int | None, name: str, severity: str
) -> None:
    found = judge(CURVE, rate, "Adam", steps, renewed=False)
    assert (found.name, found.severity) == (name, severity)
    assert (
        "starts to decrease at 0.01 and reaches its minimum, 30% of the initial loss, at 1;"
        in found.evidence
    )
    assert bool(found.fix) == (severity in ("serious", "warning"))
    assert ("between 0.01 and 0.3" in found.fix) == bool(found.fix)


def test_steps_that_a_rate_needs_go_as_far_as_the_test() -> None:
    # 0.0001 + 0.001 + 0.01 = 2220 x 0.000005
    found = judge(CURVE, 5e-6, "Adam", None, renewed=False)
    assert found.numbers["steps_to_fall"] == 2220
    assert "the minimum takes about 2,220 steps." in found.evidence


def test_rates_far_above_those_tried_are_too_high_even_if_the_loss_never_rose() -> None:
    curve = Curve(CURVE.rates, np.array([1, 1, 0.9, 0.6, 0.3, 0.2, 0.1]))
    assert judge(curve, 199.0, "Adam", None, renewed=False).name == "learning rate"
    assert judge(curve, 200.0, "Adam", None, renewed=False).name == "learning rate too high"


@pytest.mark.parametrize(("least", "severity"), [(0.995, "serious"), (0.96, "warning")])
def test_a_loss_that_does_not_fall_is_found(least: float, severity: str) -> None:
    curve = Curve(10.0 ** np.arange(-4, 1), np.array([1, 1, least, 1.2, 7]))
    found = judge(curve, 1e-3, "Adam", None, renewed=False)
    assert (found.name, found.severity) == ("no learning rate works", severity)
    assert "increases from 1 upward" in found.evidence


def test_rate_is_that_of_the_optimizer() -> None:
    model = solve()
    context = DoctorContext(model, FEW)
    assert rate_of(context) is None
    model.compile(keras.optimizers.Adam(0.02))
    assert rate_of(context) == pytest.approx(0.02)
    model.compile(keras.optimizers.SGD(WarmupDecay(0.3, total_steps=2000, warmup_steps=100)))
    assert rate_of(context) == pytest.approx(0.3, rel=0.02)
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.04)))  # float16
    assert rate_of(context) == pytest.approx(0.04)
    context.learning_rate = 0.5
    assert rate_of(context) == 0.5


def test_healthy_rate_of_a_trained_model_is_fine() -> None:
    model = solve()
    model.compile(keras.optimizers.Adam(3e-3), "categorical_crossentropy")
    before = [w.copy() for w in model.get_weights()]
    found = check(model)
    assert (found.name, found.severity) == ("learning rate", "fine")
    assert "steps of Adam, with a new classifier" in found.evidence
    assert found.numbers["falls_from"] < 3e-3 < found.numbers["lowest_at"]
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "name"), [(3.0, "learning rate too high"), (1e-7, "learning rate too low")]
)
def test_rates_far_off_are_found(rate: float, name: str) -> None:
    found = check(solve(), learning_rate=rate)
    assert (found.name, found.severity) == (name, "serious")
    assert found.numbers["rate"] == rate


def test_sgd_is_tried_at_larger_rates() -> None:
    model = solve()
    model.compile(keras.optimizers.SGD(1e-2, momentum=0.9), "categorical_crossentropy")
    found = check(model)
    assert found.severity == "fine"
    assert "steps of SGD" in found.evidence
    assert found.numbers["lowest_at"] > 0.05


def test_a_model_without_a_gradient_is_found() -> None:
    model = solve(activation="relu")
    change(model.get_layer("hidden"), 1, -100.0)
    model.get_layer("head").trainable = False
    found = check(model, learning_rate=1e-3)
    assert (found.name, found.severity) == ("no learning rate works", "serious")


def test_a_frozen_classifier_is_not_started_anew() -> None:
    model = solve()
    model.get_layer("head").trainable = False
    found = check(model, learning_rate=3e-3)
    assert "with a new classifier" not in found.evidence
    assert found.numbers["lowest_loss"] < 0.9  # the layer in front of it learns


def test_a_loss_that_is_no_number_is_found() -> None:
    curve = Curve(np.array([1e-3]), np.array([np.inf]))
    found = judge(curve, 1e-3, "Adam", None, renewed=False)
    assert (found.name, found.severity) == ("no learning rate works", "serious")
    assert "(it is NaN or infinite)" in found.evidence
    assert found.numbers["lowest_loss"] is None  # JSON has no infinity


def test_what_cannot_be_tested_is_a_note() -> None:
    model = solve()
    assert check(model, range_steps=0).evidence == "Not tested, because `range_steps` is 0."
    model.trainable = False
    assert check(model).evidence == "Not tested: no trainable parameters."


@pytest.mark.slow
def test_a_run_is_tested_with_its_own_recipe(tmp_path: Path) -> None:
    run = Run(tmp_path)
    recipe = Recipe(
        optimizer="lion", learning_rate=1e-6, epochs=7, batch_size=10, trainable=("head/*",)
    )
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=recipe), {"training_examples": 95})
    model = tiny_vit()
    before = [w.copy() for w in model.get_weights()]
    found = check(model, run=run)
    assert "steps of Lion, at learning rates" in found.evidence  # its classifier is new already
    assert (found.name, found.severity) == ("learning rate too low", "serious")
    assert found.numbers["rate"] == 1e-6
    assert "steps (the run has 63)" in found.evidence  # 7 epochs of 9 batches
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert all(variable.trainable for variable in model.weights)


def test_a_run_with_low_rank_updates_is_tested_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, model, trained = Run(tmp_path), tiny_vit(), set()

    def range_test(network: keras.Model, *args: Any, **options: Any) -> Curve:
        trained.update(variable.name for variable in network.trainable_variables)
        return CURVE

    monkeypatch.setattr(learning_rate, "range_test", range_test)
    recipe = Recipe(trainable=("head/*",), lora_rank=2, lora_layers=("*/qkv",))
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=recipe), {"training_examples": 95})
    before = len(model.weights)
    check(model, run=run)
    assert trained == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    assert len(model.weights) == before


def test_a_run_without_gradient_descent_is_not_tested(tmp_path: Path) -> None:
    run = Run(tmp_path)
    recipe = Recipe(epochs=0, ridge_head=True, trainable=("head/*",))
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=recipe), {"training_examples": 95})
    found = check(tiny_vit(), run=run)
    assert (found.name, found.severity) == ("learning rate", "note")
    assert found.evidence == "Not tested, because `epochs` is 0."


def test_a_run_of_another_network_is_tested(tmp_path: Path) -> None:
    run = Run(tmp_path)
    recipe = Recipe(optimizer="adamw", learning_rate=3e-3, epochs=7, batch_size=10)
    run.write_config(RunConfig("digits", "MobileNetV2", recipe=recipe), {"training_examples": 95})
    model = solve()  # without a configuration of this package, as networks of keras.applications
    before = [w.copy() for w in model.get_weights()]
    found = check(model, run=run)
    assert "steps of AdamW, with a new classifier" in found.evidence
    assert found.numbers["lowest_loss"] < 0.9
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(("momentum", "images", "found"), [
    (0.9999, 2000, True), (0.9, 2000, False), (0.0, 2000, False), (0.9999, None, False),
])  # fmt: skip
def test_average_over_more_steps_than_the_run_is_a_finding(
    momentum: float, images: int | None, found: bool
) -> None:
    recipe = Recipe(ema_momentum=momentum, epochs=1)
    run = SimpleNamespace(resolved=lambda: {"training_examples": images})
    context: Any = SimpleNamespace(config=SimpleNamespace(recipe=recipe), run=run)
    steps = learning_rate._steps(context)
    findings = learning_rate._averaging(context, steps)
    assert bool(findings) == found
    if found:
        assert "0.9999 to the power of 125 steps is 0.99" in findings[0].evidence
        assert findings[0].fix == "Train longer, or set ema_momentum to at most 0.9817."
