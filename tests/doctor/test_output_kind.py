from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from keras_vit.doctor import output_kind
from tests.helpers import assert_close, tiny_model

pytestmark = pytest.mark.tensorflow

L = keras.layers


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.2, 0.3, 0.5], "softmax"),
        ([0.2, 0.3, 0.9], "sigmoid"),
        ([0.2, 0.3, 1.5], "linear"),
        ([-0.2, 0.7, 0.5], "linear"),
    ],
)
def test_likely_ending_is_seen_in_the_outputs(row: list[float], expected: str) -> None:
    assert output_kind.likely_ending(np.array([[0.1, 0.2, 0.7], row])) == expected


def test_sums_to_one_looks_at_every_row() -> None:
    assert output_kind.sums_to_one(np.array([[0.25, 0.75], [0.5, 0.505]]))
    assert not output_kind.sums_to_one(np.array([[0.25, 0.75], [0.5, 0.6]]))


def test_as_logits_gives_the_probabilities_back() -> None:
    p = np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]], "float32")
    assert_close(keras.ops.softmax(output_kind.as_logits(p, "softmax")), p, 1e-6)
    assert_close(output_kind.as_logits(p, "linear"), p, 0)
    # Odds 1/4, 3/7, 1 divided by their sum.
    odds = np.array([1 / 4, 3 / 7, 1.0])
    found = keras.ops.softmax(output_kind.as_logits(p[:1], "sigmoid"))
    assert_close(found[0], (odds / odds.sum()).astype("float32"), 1e-6)


@pytest.mark.parametrize(("column", "ending"), [([[0.2], [0.9]], "sigmoid"), (
    [[math.log(0.25)], [math.log(9)]], "linear"
)])  # fmt: skip
def test_as_logits_reads_one_column_as_the_second_of_two_classes(
    column: list[list[float]], ending: str
) -> None:
    found = keras.ops.softmax(output_kind.as_logits(np.array(column, "float32"), ending))
    assert_close(found, np.array([[0.8, 0.2], [0.1, 0.9]], "float32"), 1e-6)


def test_mean_loss_is_the_cross_entropy() -> None:
    p = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    assert output_kind.mean_loss(p[:2], np.array([0, 1])) == pytest.approx(
        (math.log(2) + math.log(4 / 3)) / 2
    )
    assert output_kind.mean_loss(p[2:], np.array([1])) == pytest.approx(-math.log(1e-7))


def names(model: keras.Model, outputs: int) -> list[str]:
    return [variable.path for variable in output_kind.head_of(model, outputs)]


def test_head_of_is_the_last_layer_with_as_many_outputs() -> None:
    model = keras.Sequential([
        keras.Input((5,)), L.Dense(7, name="first"), L.Dense(3, name="narrow"),
        L.Dense(3, name="last", use_bias=False), L.Softmax(),
    ], name="m")  # fmt: skip
    assert names(model, 3) == ["m/last/kernel"]  # not the other one of three units
    assert names(model, 7) == ["m/first/kernel", "m/first/bias"]
    assert names(model, 11) == []


def test_head_of_a_distilled_model_is_both_heads() -> None:
    model = tiny_model(
        num_layers=1, distillation_token=True, distillation_head=True, register_tokens=0
    )
    assert sorted(names(model, 11)) == [
        "distillation_head/bias", "distillation_head/kernel", "head/bias", "head/kernel",
    ]  # fmt: skip
