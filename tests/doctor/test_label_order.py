from __future__ import annotations

import dataclasses
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.label_order import check_labels, check_names, class_name
from tests.doctor.conftest import DIGITS, PREPROCESSING, change, only, solve, tiny_vit

pytestmark = pytest.mark.tensorflow


def check(meaning: list[int], **options: int) -> Finding:
    """Of a model whose output `meaning[k]` stands for the digit k."""
    targets = np.array(meaning)[DIGITS.targets]
    carries = None if options else PREPROCESSING
    model = solve(PREPROCESSING, carries, targets=targets, **options)
    unnamed = dataclasses.replace(PREPROCESSING, class_names=None) if options else None
    return only(check_labels(DoctorContext(model, DIGITS, preprocessing=unnamed)))


def test_labels_that_fit_are_fine(healthy: DoctorContext) -> None:
    found = only(check_labels(healthy))
    assert (found.name, found.severity) == ("labels", "fine")
    assert found.numbers["accuracy"] == healthy.accuracy
    assert max(found.numbers["accuracy_shifted"].values()) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1, -1])
def test_labels_shifted_by_one_are_found(shift: int) -> None:
    found = check([(k + shift) % 10 for k in range(10)])
    assert (found.name, found.severity) == ("labels shifted by one", "serious")
    assert found.numbers["shift"] == shift
    assert found.numbers["accuracy_shifted"][f"{shift:+d}"] > 0.9 > found.numbers["accuracy"]
    assert f"output k {'+' if shift > 0 else '-'} 1" in found.fix


@pytest.mark.slow
def test_a_background_class_is_found() -> None:
    found = check([k + 1 for k in range(10)], classes=11)
    assert (found.name, found.numbers["shift"]) == ("labels shifted by one", 1)


def test_permuted_labels_are_found_with_their_permutation() -> None:
    found = check([0, 1, 3, 2, 5, 6, 4, 7, 8, 9])
    assert (found.name, found.severity) == ("labels permuted", "serious")
    assert found.numbers["permutation"] == {"2": 3, "3": 2, "4": 5, "5": 6, "6": 4}
    assert "2 at 3, 3 at 2, 4 at 5" in found.evidence
    assert found.numbers["accuracy_permuted"] > 0.9


def test_two_swapped_classes_among_ten_are_found() -> None:
    found = check([0, 1, 2, 3, 4, 5, 6, 7, 9, 8])
    assert found.numbers["permutation"] == {"8": 9, "9": 8}


@pytest.mark.slow
def test_two_swapped_classes_of_two_are_found() -> None:
    two = DIGITS.subset(np.flatnonzero(DIGITS.targets < 2))
    carries = dataclasses.replace(PREPROCESSING, class_names=("1", "0"))
    model = solve(PREPROCESSING, carries, targets=(DIGITS.targets > 0).astype(int), classes=2)
    found = only(check_labels(DoctorContext(model, two)))
    assert (found.name, found.severity) == ("labels permuted", "serious")
    assert found.numbers["permutation"] == {"0": 0, "1": 1}  # which it calls 1 and 0
    assert found.numbers["accuracy_shifted"] == {}


def test_a_model_that_has_not_learned_is_not_blamed_on_its_labels() -> None:
    # Random answers do depend on the image: a permutation helps them, even on the other half.
    model = solve()
    random = np.random.default_rng(2)
    change(model.get_layer("head"), 0, random.normal(size=(83, 10)) / 10)
    context = DoctorContext(model, DIGITS)
    found = only(check_labels(context))
    assert found.numbers["accuracy_permuted"] > context.accuracy + 0.05
    assert found.severity == "fine"


def test_confusions_of_a_weak_model_are_no_permutation() -> None:
    model = solve()
    random = np.random.default_rng(2)
    kernel = model.get_layer("head").get_weights()[0]
    change(model.get_layer("head"), 0, kernel + random.normal(size=kernel.shape) / 2)
    context = DoctorContext(model, DIGITS)
    assert 0.3 < context.accuracy < 0.8
    assert only(check_labels(context)).severity == "fine"


def names(outputs: int, labels: tuple[str, ...] | None) -> Finding:
    context = DoctorContext(solve(), DIGITS)
    context.num_classes = outputs
    context.preprocessing = dataclasses.replace(PREPROCESSING, class_names=labels)
    return only(check_names(context))


@pytest.mark.parametrize(
    ("outputs", "labels", "name", "severity"),
    [
        (10, PREPROCESSING.class_names, "names", "fine"),
        (12, (*"0123456789", "a", "b"), "names", "fine"),
        (10, None, "classes without names", "note"),
        (7, None, "outputs differ from classes", "serious"),
        (12, None, "outputs differ from classes", "warning"),
        (10, tuple("012345678"), "outputs differ from labels", "serious"),
    ],
)
def test_outputs_are_counted_and_have_names(
    outputs: int, labels: tuple[str, ...] | None, name: str, severity: str
) -> None:
    found = names(outputs, labels)
    assert (found.name, found.severity) == (name, severity)
    assert found.numbers["outputs"] == outputs
    assert f"The model has {outputs} outputs" in found.evidence


@pytest.mark.slow
def test_new_model_without_names_is_told_how_to_get_them() -> None:
    found = only(check_names(DoctorContext(tiny_vit(), DIGITS.subset(range(30)))))
    assert found.name == "classes without names"
    advice = re.search(r"copy the model with (.*class_names=)\(\.\.\.\)\)\)\.", found.fix)
    vit = tiny_vit()
    for model in (
        vit,
        keras.Sequential([keras.Input((8, 8, 3)), vit]),
    ):  # also for a model that contains one
        names = {"keras_vit": keras_vit, "dataclasses": dataclasses, "model": model}
        copy = eval(f"{advice[1]}tuple('0123456789')))", names)  # noqa: S307
        assert keras_vit.models.preprocessing_of(copy).class_names == tuple("0123456789")


def test_class_name_is_the_models_where_classes_are_matched_by_name() -> None:
    labels = tuple("9876543210")
    context = DoctorContext(
        solve(carries=dataclasses.replace(PREPROCESSING, class_names=labels)), DIGITS
    )
    assert class_name(context, 2) == "7"
    renamed = DoctorContext(
        solve(carries=dataclasses.replace(PREPROCESSING, class_names=tuple("abcdefghij"))), DIGITS
    )
    assert class_name(renamed, 2) == "2"
    assert class_name(renamed, 12) == "12"
