from __future__ import annotations

import functools

import keras
import numpy as np
import pytest

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.outputs import check_outputs, compiled_loss
from tests.doctor.conftest import DIGITS, only, several, solve

pytestmark = pytest.mark.tensorflow

FEW = DIGITS.subset(range(40))
Losses = keras.losses


def check(model: keras.Model, loss: object = None) -> Finding:
    if loss is not None:
        model.compile("sgd", loss)
    return only(check_outputs(DoctorContext(model, FEW)))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("categorical_crossentropy", ("categorical_crossentropy", False)),
        (Losses.BinaryCrossentropy(from_logits=True), ("binary_crossentropy", True)),
        ([Losses.SparseCategoricalCrossentropy()], ("sparse_categorical_crossentropy", False)),
        ("mse", ("mean_squared_error", None)),
        (
            functools.partial(Losses.categorical_crossentropy, from_logits=True),
            ("categorical_crossentropy", True),
        ),
        (None, None),
    ],
)
def test_compiled_loss_is_read(loss: object, expected: object) -> None:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    assert compiled_loss(model) is None
    model.compile("sgd", loss)
    assert compiled_loss(model) == expected


@pytest.mark.parametrize("kind", ["Categorical", "SparseCategorical", "CategoricalFocal"])
def test_loss_that_fits_is_fine(kind: str) -> None:
    loss = getattr(Losses, f"{kind}Crossentropy")
    for ending, from_logits in (("softmax", False), (None, True)):
        found = check(solve(ending=ending), loss(from_logits=from_logits))
        assert (found.name, found.severity) == ("outputs", "fine")
        assert f"from_logits={from_logits}" in found.evidence


@pytest.mark.parametrize("ending", ["softmax", "sigmoid"])
def test_softmax_twice_is_found(ending: str) -> None:
    model = solve(ending=ending)
    found = check(model, Losses.CategoricalCrossentropy(from_logits=True))
    assert (found.name, found.severity) == ("softmax twice", "serious")
    assert found.numbers["from_logits"] is True


def test_logits_taken_for_probabilities_are_found() -> None:
    found = check(solve(ending=None), "sparse_categorical_crossentropy")
    assert (found.name, found.severity) == ("logits treated as probabilities", "serious")
    assert found.numbers["minimum"] < 0


def test_softmax_in_a_layer_of_ones_own_is_seen_in_the_outputs() -> None:
    class Mine(keras.layers.Layer):
        def call(self, inputs: object) -> object:
            return keras.ops.softmax(inputs)

    base = solve(ending=None)
    model = keras.Sequential([*base.layers, Mine()])
    assert check(model, "categorical_crossentropy").severity == "fine"
    found = check(model, Losses.CategoricalCrossentropy(from_logits=True))
    assert found.name == "softmax twice"


def test_loss_of_another_kind_is_found() -> None:
    for ending, loss in (
        ("sigmoid", "categorical_crossentropy"),
        ("softmax", "binary_crossentropy"),
    ):
        found = check(solve(ending=ending), loss)
        assert (found.name, found.severity) == ("loss that does not match the outputs", "warning")
    assert check(solve(ending="sigmoid"), "binary_crossentropy").severity == "fine"


def test_softmax_along_another_axis_is_found() -> None:
    base = solve(ending=None)
    images = keras.Input((8, 8, 3), batch_size=8)
    model = keras.Model(images, keras.layers.Softmax(axis=0)(base(images)))
    context = DoctorContext(model, FEW, batch_size=8)
    found = only(check_outputs(context))
    assert (found.name, found.severity) == ("probabilities that do not sum to 1", "serious")
    np.testing.assert_allclose(found.numbers["largest_sum"], context.raw.sum(axis=1).max())


@pytest.mark.slow
def test_softmax_for_several_classes_is_found() -> None:
    for ending, severity in (("softmax", "warning"), ("sigmoid", "fine")):
        found = only(check_outputs(DoctorContext(solve(ending=ending), several())))
        assert found.severity == severity
    assert (
        only(check_outputs(DoctorContext(solve(), several()))).name
        == "softmax for multi-label data"
    )


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
def test_softmax_over_one_output_is_found() -> None:
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1, "softmax")]
    )
    two = DIGITS.subset(np.flatnonzero(DIGITS.targets < 2))
    found = only(check_outputs(DoctorContext(model, two)))
    assert (found.name, found.severity) == ("softmax over one output", "serious")


def test_without_a_loss_the_right_one_is_named() -> None:
    assert "use from_logits=True" in check(solve(ending=None)).evidence
    assert "use from_logits=False" in check(solve()).evidence
    assert check(solve(), "mse").severity == "fine"  # no cross-entropy, nothing to say
