from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest

from keras_vit.constants import IMAGENET_MEAN, IMAGENET_STD
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.pixel_scaling import assume_best, check_pixels
from keras_vit.doctor.scaling_candidates import candidates
from keras_vit.preprocessing import Preprocessing
from tests.doctor.conftest import DIGITS, PREPROCESSING, RAW, change, only, solve

pytestmark = pytest.mark.tensorflow

UNIT = dataclasses.replace(PREPROCESSING, mean=0.0, std=1.0)  # [0, 1]


def signed() -> keras.layers.Layer:
    return keras.layers.Rescaling(1 / 127.5, -1)


def check(model: keras.Model, **options: Preprocessing) -> Finding:
    return only(check_pixels(DoctorContext(model, DIGITS, **options)))


def test_pixels_scaled_once_are_fine(healthy: DoctorContext) -> None:
    found = only(check_pixels(healthy))
    assert (found.name, found.severity) == ("pixels", "fine")
    assert found.numbers["mean"] == pytest.approx(healthy.inputs(PREPROCESSING).mean())
    assert (found.numbers["minimum"], found.numbers["maximum"]) == (-1, 1)
    assert found.numbers["accuracies"]["as prepared"] > 0.9


@pytest.mark.slow
def test_pixels_scaled_by_a_layer_instead_are_fine() -> None:
    found = check(solve(RAW, RAW, front=[signed()]))
    assert found.severity == "fine"
    assert len(found.numbers["scaling_layers"]) == 1
    assert "after the preprocessing changes this to mean" in found.evidence


def test_pixels_scaled_by_contract_and_layer_are_found() -> None:
    found = check(solve(RAW, PREPROCESSING, front=[signed()]))
    assert (found.name, found.severity) == ("pixels scaled twice", "serious")
    assert found.numbers["accuracies"]["0..255"] > 0.9
    assert found.numbers["accuracies"]["as prepared"] < 0.3
    # 0.75 / 127.5
    assert found.numbers["std_after_scaling_layers"] == pytest.approx(0.0059, abs=2e-4)


def test_pixels_scaled_twice_are_found_in_a_model_that_has_not_learned() -> None:
    model = solve(RAW, PREPROCESSING, front=[signed()])
    change(model.get_layer("head"), 0, 0.0)
    found = check(model)
    assert (found.name, found.severity) == ("pixels scaled twice", "serious")
    assert "Accuracy is at chance level with every pixel scaling." in found.evidence


def test_pixels_that_a_model_has_learned_to_see_scaled_twice_are_only_a_warning() -> None:
    squeezing = keras.layers.Rescaling(1 / 127.5)
    model = solve(PREPROCESSING, PREPROCESSING, front=[squeezing, keras.layers.Rescaling(127.5)])
    assert check(model).severity == "fine"  # what reaches the weights counts
    hidden = keras.Sequential([keras.Input((8, 8, 3)), *model.layers[:2], *model.layers[3:]])
    change(hidden.get_layer("hidden"), 0, hidden.get_layer("hidden").get_weights()[0] * 127.5)
    found = check(hidden)
    assert (found.name, found.severity) == ("pixels scaled twice", "warning")


def test_pixels_that_are_not_scaled_are_found() -> None:
    found = check(solve(PREPROCESSING, RAW))
    assert (found.name, found.severity) == ("pixels not scaled", "serious")
    # Both do on these images, which are gray.
    assert "expect imagenet or -1..1: scale the images that way" in found.fix
    model = solve(PREPROCESSING, RAW)
    change(model.get_layer("head"), 0, 0.0)
    found = check(model)
    assert (found.name, found.severity) == ("pixels not scaled", "warning")


@pytest.mark.parametrize(
    ("trained_on", "expected"),
    [
        (UNIT, "0..1"),
        (dataclasses.replace(PREPROCESSING, mean=(0.5,), std=(0.5,)), ""),
    ],
)
def test_pixels_scaled_otherwise_are_found(trained_on: Preprocessing, expected: str) -> None:
    found = check(solve(trained_on))
    assert found.name == ("pixels scaled differently" if expected else "pixels")
    assert expected in found.fix
    assert bool(found.fix) == bool(expected)


def test_scales_that_serve_as_well_are_no_finding() -> None:
    # On gray images ImageNet's numbers are not far from 0.5.
    imagenet = dataclasses.replace(PREPROCESSING, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    found = check(solve(imagenet))
    assert found.severity == "fine"
    assert found.numbers["accuracies"]["imagenet"] > 0.9


def test_swapped_channels_are_found() -> None:
    model = solve()
    context = DoctorContext(model, DIGITS)
    # Only the red channel shows anything, and the model looks at the blue one.
    context.pixels = context.pixels * [1.0, 0.0, 0.0] + [0.0, 127.5, 127.5]
    kernel = model.get_layer("hidden").get_weights()[0].reshape(64, 3, 83)
    kernel = np.stack([0 * kernel[:, 0], 0 * kernel[:, 1], kernel.sum(axis=1)], axis=1)
    change(model.get_layer("hidden"), 0, kernel.reshape(192, 83))
    context._predicted.clear()
    found = only(check_pixels(context))
    assert (found.name, found.severity) == ("channels swapped", "serious")


def test_pixels_stored_in_zero_to_one_are_found() -> None:
    context = DoctorContext(solve(), DIGITS)
    context.pixels = np.round(context.pixels / 255)
    found = only(check_pixels(context))
    assert (found.name, found.severity) == ("constant pixels", "serious")
    assert "between 0 and 1, out of a range of 0 to 255" in found.evidence


@pytest.mark.parametrize(
    ("right", "sure", "severity"), [(50, 0.98, "fine"), (50, 0.3, "serious"), (90, 0.98, "serious")]
)
def test_a_broken_model_is_not_blamed_on_its_pixels(right: int, sure: float, severity: str) -> None:
    context = DoctorContext(solve(), DIGITS)
    labels = context.labels[:128]

    def answer(share: int, sure: float) -> np.ndarray:
        guesses = np.where(np.arange(128) < 1.28 * share, labels, (labels + 1) % 10)
        return np.eye(10)[guesses] * (sure - 0.02) + 0.02

    ways = candidates(context.preprocessing)
    context._predicted = {way: answer(10, 0.98) for way in ways.values()}
    context._predicted[ways["0..1"]] = answer(right, sure)
    # Half of the answers are right, but those that are wrong are as sure.
    assert only(check_pixels(context)).severity == severity


def test_pixels_of_another_library_are_guessed_from_the_answers() -> None:
    context = DoctorContext(solve(UNIT, None), DIGITS)
    assume_best(context)
    assert (context.preprocessing.std, context.known) == ((1.0,) * 3, False)
    assert context.accuracy > 0.9
    found = only(check_pixels(context))
    assert (found.name, found.severity) == ("pixels", "note")
    assert "pass it with --pixels" in found.fix


def test_pixels_of_another_library_are_guessed_from_its_layers() -> None:
    model = solve(RAW, None, front=[signed()])
    change(model.get_layer("head"), 0, 0.0)
    context = DoctorContext(model, DIGITS)
    assume_best(context)
    np.testing.assert_allclose(context.preprocessing.std, 1 / 255)
    assert only(check_pixels(context)).severity == "fine"
    model = solve(UNIT, None)
    change(model.get_layer("head"), 0, 0.0)
    context = DoctorContext(model, DIGITS)
    assume_best(context)
    assert context.preprocessing.std == (1.0,) * 3
    assert (
        "Neither the layers nor the outputs show which pixel scaling the model expects: pass"
        in only(check_pixels(context)).fix
    )


@pytest.mark.slow
def test_pixels_of_another_library_are_checked_if_it_is_said_what_they_are() -> None:
    found = check(solve(RAW, None, front=[signed()]), preprocessing=UNIT)
    assert (found.name, found.severity) == ("pixels scaled twice", "serious")


def test_known_contracts_stay() -> None:
    context = DoctorContext(solve(UNIT, PREPROCESSING), DIGITS)
    assume_best(context)
    assert context.preprocessing == PREPROCESSING


def test_models_of_bytes_are_given_bytes_alone() -> None:
    images = keras.Input((8, 8, 3), dtype="uint8")
    z = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(images))
    found = check(keras.Model(images, keras.layers.Dense(10)(z)))
    assert list(found.numbers["accuracies"]) == ["as prepared"]
