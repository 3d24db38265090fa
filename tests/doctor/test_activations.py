from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.doctor.activations import check_activations
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from tests.doctor.conftest import DIGITS, alarms, change, only, solve, tiny_vit

pytestmark = pytest.mark.tensorflow

L = keras.layers
FEW = DIGITS.subset(range(40))


def check(model: keras.Model) -> list[Finding]:
    return check_activations(DoctorContext(model, FEW))


def test_healthy_activations_are_fine(healthy: DoctorContext) -> None:
    found = only(check_activations(healthy))
    assert (found.name, found.severity) == ("activations", "fine")
    assert found.numbers["largest"] == pytest.approx(1, abs=1e-3)  # those of tanh


def test_weights_that_are_no_numbers_are_found() -> None:
    model = solve()
    change(model.get_layer("hidden"), 0, np.nan, (3, 5))
    findings = check(model)
    assert alarms(findings) == {
        "NaN or infinite weights": "serious",
        "NaN or infinite outputs": "serious",
    }
    assert "1 of 4 variables" in findings[0].evidence
    assert findings[0].numbers["variables"][0].endswith("hidden/kernel")


def test_outputs_that_are_no_numbers_are_found_with_the_layer() -> None:
    model = solve()
    change(model.get_layer("hidden"), 1, 1e38)
    hidden = L.Dense(83, activation="linear", name="hidden")
    broken = keras.Sequential([keras.Input((8, 8, 3)), *model.layers[:2], hidden,
                               L.Rescaling(1e38, name="too_large"), model.layers[3]])  # fmt: skip
    findings = check(broken)
    assert alarms(findings) == {
        "NaN or infinite outputs": "serious",
        "exploding activations": "serious",
    }
    assert findings[1].numbers["first_bad"].endswith("too_large")


def test_large_activations_are_found() -> None:
    model = solve()
    hidden = model.get_layer("hidden")
    hidden.activation = keras.activations.linear
    change(hidden, 1, 2e6, 7)
    findings = check(model)
    assert alarms(findings) == {"exploding activations": "warning"}
    assert next(iter(findings[0].numbers["largest"].values())) == pytest.approx(2e6, rel=1e-3)


def test_activations_near_the_end_of_float16_are_found() -> None:
    half = [keras.Input((8, 8, 3)), L.Flatten(dtype="mixed_float16")]
    model = keras.Sequential([*half, L.Dense(7, dtype="mixed_float16"), L.Dense(10)])
    change(model.layers[1], 1, 4e4, 2)
    assert alarms(check(model)) == {"exploding activations": "serious"}
    change(model.layers[1], 1, 2e4, 2)
    assert alarms(check(model)) == {}


def test_activations_near_the_end_of_float16_count_beside_larger_ones() -> None:
    half = L.Dense(7, dtype="mixed_float16", name="half")
    large = L.Rescaling(9.0, dtype="float32", name="large")  # 360,000 are few for float32
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), L.Flatten(dtype="mixed_float16"), half, large, L.Dense(10)]
    )
    change(half, 1, 4e4, 2)
    found = only(check(model))
    assert (found.name, found.severity) == ("exploding activations", "serious")
    assert [name.rpartition("/")[2] for name in found.numbers["largest"]] == ["half"]
    assert "half'" in found.evidence


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("dead", [0, 60, 75, 83])
def test_dead_units_are_found(activation: str, dead: int) -> None:
    model = solve(activation=activation)
    change(model.get_layer("hidden"), 1, -100.0, slice(dead))
    findings = check(model)
    expected = {0: {}, 60: {}, 75: "warning", 83: "serious"}[dead]  # 72%, 90%, 100%
    assert alarms(findings) == (expected and {"dead activations": expected})
    if expected:
        share = next(iter(findings[0].numbers["dead"].values()))
        assert share == pytest.approx(dead / 83, abs=0.05)


def test_dead_units_are_found_behind_layers_of_activations() -> None:
    for activation in (L.ReLU(), L.Activation("relu")):
        model = keras.Sequential(
            [keras.Input((8, 8, 3)), L.Conv2D(11, 3), activation, L.Flatten(), L.Dense(10)]
        )
        assert alarms(check(model)) == {}
        change(model.layers[0], 1, -1e3)
        assert alarms(check(model)) == {"dead activations": "serious"}


def test_dead_units_are_found_in_our_own_perceptrons() -> None:
    model = tiny_vit()
    assert alarms(check(model)) == {}
    change(model.get_layer("block_00").mlp.expand, 1, -100.0)
    findings = check(model)
    assert alarms(findings) == {"dead activations": "serious"}
    assert next(iter(findings[0].numbers["dead"])) == "block_00/mlp/expand"


def test_small_activations_are_not_dead() -> None:
    # As behind the normalizations of a new network, whose statistics are not those of the data.
    model = solve(activation="relu")
    change(model.get_layer("hidden"), 0, model.get_layer("hidden").get_weights()[0] * 1e-6)
    change(model.get_layer("hidden"), 1, 0.0)
    assert alarms(check(model)) == {}


def test_looking_changes_nothing() -> None:
    model = solve(activation="gelu")
    before = np.array(model(np.ones((2, 8, 8, 3), "float32")))
    check(model)
    np.testing.assert_array_equal(model(np.ones((2, 8, 8, 3), "float32")), before)
    assert model.get_layer("hidden").activation is keras.activations.gelu
