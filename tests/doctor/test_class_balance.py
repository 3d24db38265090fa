from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from keras_vit import data
from keras_vit.doctor import context as context_module
from keras_vit.doctor.class_balance import check_classes
from keras_vit.doctor.context import DoctorContext
from tests.doctor.conftest import DIGITS, PREPROCESSING, alarms, only, several, solve

pytestmark = pytest.mark.tensorflow


def first(counts: list[int]) -> data.Examples:
    """So many of each digit."""
    places = [np.flatnonzero(DIGITS.targets == k)[:n] for k, n in enumerate(counts)]
    return DIGITS.subset(np.concatenate(places))


def test_balanced_classes_are_fine(healthy: DoctorContext) -> None:
    found = only(check_classes(healthy))
    assert (found.name, found.severity) == ("classes", "fine")
    assert sum(found.numbers["counts"].values()) == 300


@pytest.mark.slow
def test_imbalance_is_found() -> None:
    # A tenth of 21 is 2.1: two images are rare, three are not.
    examples = first([21, 2, 3, 20, 20, 20, 20, 20, 20, 2])
    found = only(check_classes(DoctorContext(solve(), examples)))
    assert (found.name, found.severity) == ("class imbalance", "warning")
    assert found.numbers == {"rare": {"1": 2, "9": 2}, "largest": 21}
    assert "class_weights=balanced" in found.fix


@pytest.mark.slow
def test_classes_without_images_are_found() -> None:
    found = only(check_classes(DoctorContext(solve(), first([9, 0, 9, 9, 0, 9, 9, 9, 9, 9]))))
    assert (found.name, found.severity) == ("classes without images", "warning")
    assert found.numbers["empty"] == ["1", "4"]
    few = first([9, 9, 9, 9, 0, 0, 0, 0, 0, 0])  # a sample of the classes
    assert only(check_classes(DoctorContext(solve(), few))).severity == "note"


def test_data_that_can_only_be_evaluated_on_is_found() -> None:
    findings = check_classes(DoctorContext(solve(), first([9, 9, 9, 9, 9, 9, 1, 9, 9, 9])))
    assert alarms(findings) == {"data that cannot be trained on": "warning"}
    assert "with one image of ['6']" in findings[0].evidence


def test_classes_that_the_model_lacks_are_found() -> None:
    labels = (*"01234567", "eight", "9")
    model = solve(carries=dataclasses.replace(PREPROCESSING, class_names=labels))
    found = only(check_classes(DoctorContext(model, first([7] * 8 + [5, 7]))))
    assert (found.name, found.severity) == ("classes unknown to the model", "serious")
    assert found.numbers == {"unknown": ["8"], "images": 5}


@pytest.mark.slow
def test_names_that_have_nothing_in_common_are_matched_by_place() -> None:
    model = solve(carries=dataclasses.replace(PREPROCESSING, class_names=tuple("abcdefghij")))
    context = DoctorContext(model, DIGITS)
    found = only(check_classes(context))
    assert (found.name, found.severity) == ("classes unknown to the model", "warning")
    assert "matched by index." in found.evidence
    assert context.accuracy > 0.9


def test_what_the_data_check_finds_is_passed_on() -> None:
    examples = first([5] * 10)
    encoded = list(examples.encoded or ())
    encoded[0] = b"no image"
    encoded[30] = encoded[7]  # a 6 is the 1
    encoded[20] = encoded[21]
    splits = ["train"] * 50
    splits[20] = "validation"
    examples = dataclasses.replace(examples, encoded=tuple(encoded), splits=tuple(splits))
    findings = check_classes(DoctorContext(solve(), examples))
    assert alarms(findings) == {
        "images that cannot be decoded": "serious",
        "contradicting labels": "warning",
        "images in both splits": "warning",
    }
    assert f"1 of 50 images cannot be used, such as {examples.names[0]}" in findings[0].evidence
    assert f"{examples.names[7]} = {examples.names[30]}" in findings[1].evidence
    assert f"{examples.names[20]} = {examples.names[21]}" in findings[2].evidence


@pytest.mark.slow
def test_classes_of_images_that_show_several_are_counted() -> None:
    labels = (*"01234567", "eight", "9")
    model = solve(carries=dataclasses.replace(PREPROCESSING, class_names=labels), ending="sigmoid")
    examples = several()
    found = only(check_classes(DoctorContext(model, examples)))
    assert found.numbers == {"unknown": ["8"], "images": int((DIGITS.targets == 8).sum())}
    found = only(check_classes(DoctorContext(solve(ending="sigmoid"), examples)))
    assert found.severity == "fine"
    assert (
        found.numbers["counts"]["0"] == examples.targets[:, 0].sum() > (DIGITS.targets == 0).sum()
    )


@pytest.mark.slow
def test_classes_are_counted_on_all_images_even_if_few_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_module, "_DECODED", 50)
    found = only(check_classes(DoctorContext(solve(), DIGITS)))
    assert found.severity == "fine"  # though of some classes only one image was decoded
    assert sum(found.numbers["counts"].values()) == 300
    assert found.evidence.endswith("50 of them were decoded.")
