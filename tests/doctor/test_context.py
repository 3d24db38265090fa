from __future__ import annotations

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_vit.doctor import context as context_module
from keras_vit.doctor.context import DoctorContext, turns
from keras_vit.doctor.label_order import check_names
from keras_vit.doctor.scaling_candidates import candidates
from keras_vit.layers import ModelMetadata
from keras_vit.preprocessing import Preprocessing
from tests.doctor.conftest import (
    DIGITS,
    PIXELS,
    PREPROCESSING,
    RAW,
    only,
    several,
    solve,
    tiny_vit,
)

pytestmark = pytest.mark.tensorflow

L = keras.layers


def test_context_looks_at_classes_equally_often() -> None:
    # Of the digits 0 to 4, ten, one, seven, twelve and two.
    wanted = [10, 1, 7, 12, 2]
    chosen = [np.flatnonzero(DIGITS.targets == k)[:n] for k, n in enumerate(wanted)]
    context = DoctorContext(solve(), DIGITS.subset(np.concatenate(chosen)), sample=17)
    # All of the two rare ones; the others share the rest, and one of them gets one less.
    counts = np.bincount(context.labels).tolist()
    assert (counts[1], counts[4]) == (1, 2)
    assert sorted([counts[0], counts[2], counts[3]]) == [4, 5, 5]


def test_context_prepares_images_as_the_model_wants_them(healthy: DoctorContext) -> None:
    first = np.flatnonzero([np.array_equal(healthy.pixels[0], image) for image in PIXELS])
    assert DIGITS.targets[int(only(list(first)))] == healthy.labels[0]
    np.testing.assert_array_equal(
        healthy.inputs(PREPROCESSING, 3), PREPROCESSING.scale(healthy.pixels[:3])
    )
    answers = keras.ops.convert_to_numpy(healthy.model(healthy.inputs(PREPROCESSING)))
    np.testing.assert_allclose(healthy.raw, answers, atol=1e-5)
    np.testing.assert_allclose(healthy.probabilities, answers, atol=1e-5)
    assert healthy.accuracy == np.mean(answers.argmax(axis=1) == healthy.labels) > 0.9


def test_context_reverses_channels_where_a_contract_does() -> None:
    context = DoctorContext(solve(), DIGITS.subset(range(20)))
    context.pixels = context.pixels * [1.0, 0.5, 0.25]
    reverse = dataclasses.replace(RAW, channels="bgr")
    np.testing.assert_allclose(context.inputs(reverse, 2), context.pixels[:2, ..., ::-1], rtol=1e-6)
    before = context.inputs(reverse)
    context.assume(reverse)
    np.testing.assert_array_equal(context.inputs(reverse), before)


def test_context_gives_a_model_of_bytes_bytes() -> None:
    images = keras.Input((8, 8, 3), dtype="uint8")
    model = keras.Model(images, L.Dense(10)(L.Flatten()(L.Rescaling(1 / 255)(images))))
    context = DoctorContext(model, DIGITS.subset(range(20)))
    assert context.inputs(context.preprocessing).dtype == "uint8"
    assert context.inputs(context.preprocessing).max() == 255


def test_context_matches_classes_by_name(healthy: DoctorContext) -> None:
    labels = tuple("9876543210")
    context = DoctorContext(
        solve(carries=dataclasses.replace(PREPROCESSING, class_names=labels)), DIGITS
    )
    assert context.matched == "name"
    np.testing.assert_array_equal(context.labels, 9 - healthy.labels)


def test_context_leaves_out_classes_that_the_model_lacks() -> None:
    labels = (*"01234567", "eight", "nine")
    context = DoctorContext(
        solve(carries=dataclasses.replace(PREPROCESSING, class_names=labels)), DIGITS
    )
    assert context.unknown == ("8", "9")
    assert set(context.labels) == set(range(8))


@pytest.mark.slow
def test_context_of_logits_and_of_one_output_has_probabilities(healthy: DoctorContext) -> None:
    logits = DoctorContext(solve(ending=None), DIGITS)
    np.testing.assert_allclose(logits.probabilities, healthy.probabilities, atol=1e-5)
    two = dataclasses.replace(
        DIGITS.subset(np.flatnonzero(DIGITS.targets < 2)), class_names=("zero", "one")
    )
    model = keras.Sequential([keras.Input((8, 8, 3)), L.Flatten(), L.Dense(1, "sigmoid")])
    context = DoctorContext(model, two)
    assert context.num_classes == 2
    np.testing.assert_allclose(context.probabilities[:, 1], context.raw[:, 0], atol=1e-5)


def test_one_class_name_is_that_of_the_second_class() -> None:
    ones = dataclasses.replace(PREPROCESSING, class_names=("1",))
    head = L.Dense(1, "sigmoid", kernel_initializer="zeros", bias_initializer="ones")
    model = keras.Sequential([keras.Input((8, 8, 3)), ModelMetadata(ones), L.Flatten(), head])
    context = DoctorContext(model, DIGITS)
    assert context.preprocessing.class_names == ("not 1", "1")
    assert set(context.labels) == {1}
    assert context.accuracy == 1
    assert [found.name for found in check_names(context)] == ["names"]


@pytest.mark.slow
def test_context_knows_a_new_classifier() -> None:
    model = tiny_vit(classes=10)
    context = DoctorContext(model, DIGITS.subset(range(50)))
    assert context.new
    assert not context.learned
    assert context.loss == pytest.approx(math.log(10)) == context.start


def test_context_predicts_each_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context = DoctorContext(solve(), DIGITS)
    ways = candidates(context.preprocessing)
    first = context.predict(ways["0..1"], 20)
    monkeypatch.setattr(keras.Model, "__call__", None)
    np.testing.assert_array_equal(context.predict(ways["0..1"], 20), first)
    np.testing.assert_array_equal(context.predict(PREPROCESSING, 20), context.raw[:20])


@pytest.mark.slow
def test_context_looks_at_images_that_show_one_class() -> None:
    context = DoctorContext(solve(ending="sigmoid"), several(), sample=300)
    also_zero = (np.arange(300) % 7 == 0) & (DIGITS.targets != 0)
    expected = np.bincount(DIGITS.targets[~also_zero], minlength=10)
    np.testing.assert_array_equal(np.bincount(context.labels), expected)
    assert context.accuracy > 0.9
    every = dataclasses.replace(DIGITS, targets=np.ones((300, 10)))
    with pytest.raises(
        ValueError, match="`examples` must contain images that can be decoded and show one"
    ):
        DoctorContext(solve(), every)


@pytest.mark.slow
def test_context_decodes_the_pool_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "_DECODED", 40)
    pool = np.arange(277, 300)
    context = DoctorContext(solve(), DIGITS, pool=pool)
    decoded = context.check.audit.digests.keys()
    assert len(decoded) == 40
    assert len(context.labels) == len({DIGITS.names[i] for i in pool} & decoded) >= 20
    few = DoctorContext(solve(), DIGITS, pool=pool[:7])
    assert (len(few.check.audit.digests), len(few.labels)) == (40, 7)


def test_turns_count_within_each_class() -> None:
    np.testing.assert_array_equal(turns(np.array([7, 3, 7, 7, 3, 5])), [0, 0, 1, 2, 1, 0])


@pytest.mark.slow
def test_context_without_usable_images_is_refused() -> None:
    broken = dataclasses.replace(DIGITS, encoded=(b"no image",) * len(DIGITS))
    with pytest.raises(
        ValueError, match="of which 300 cannot be decoded; classes unknown to the model: none"
    ):
        DoctorContext(solve(), broken)
    names = dataclasses.replace(PREPROCESSING, class_names=("0", *"abcdefghi"))
    with pytest.raises(ValueError, match="classes unknown to the model: 3, 5"):
        DoctorContext(
            solve(carries=names), DIGITS.subset(np.flatnonzero(np.isin(DIGITS.targets, (3, 5))))
        )


@pytest.mark.slow
def test_context_that_is_no_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a classifier.*outputs of shape \(20, 8, 8, 3\)"):
        DoctorContext(
            keras.Sequential([keras.Input((8, 8, 3)), L.ReLU()]), DIGITS.subset(range(20))
        )
    with pytest.raises(ValueError, match="`model` must be a classifier and return one score per"):
        DoctorContext(tiny_vit(classes=0), DIGITS.subset(range(20)))
    few = solve(carries=None, targets=DIGITS.targets % 2, classes=2)
    with pytest.raises(ValueError, match=r"`model` must have outputs for the classes.*2 outputs"):
        DoctorContext(few, DIGITS.subset(np.flatnonzero(DIGITS.targets > 4)))
    with pytest.raises(
        ValueError, match="with the size and channels that its preprocessing produces,"
    ):
        DoctorContext(solve(), DIGITS, preprocessing=Preprocessing(size=9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"range_steps": 9}, "`range_steps` must be 0 or at least 10. Received: range_steps=9"),
        ({"range_steps": -1}, "`range_steps` must be a non-negative integer"),
        ({"sample": 0}, "`sample` must be a positive integer"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
    ],
)
def test_context_refuses_numbers_out_of_range(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DoctorContext(solve(), DIGITS, **options)
