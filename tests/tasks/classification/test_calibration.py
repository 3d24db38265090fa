from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from keras_vit.tasks.classification.calibration import (
    calibrate,
    choose_temperature,
    fit_temperature,
    reliability,
    with_temperature,
)


def sample(number: int, temperature: float, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from a model's probabilities, and the same too sure by a temperature."""
    rng = np.random.default_rng(7)
    logits = rng.normal(0, 1.5, (number, classes))
    labels = (special.softmax(logits, axis=1).cumsum(axis=1) < rng.random((number, 1))).sum(axis=1)
    return labels, special.softmax(logits * temperature, axis=1)


def test_reliability_of_a_case_worked_by_hand() -> None:
    # Five bins. 0.9, 0.9: one right; 0.55 right; 0.6, on the edge, belongs below: wrong.
    confidence, right = np.array([0.9, 0.9, 0.55, 0.6]), np.array([True, False, True, False])
    found = reliability(confidence, right, bins=5)
    assert found.counts.tolist() == [0, 0, 2, 0, 2]
    np.testing.assert_allclose(found.confidence[[2, 4]], [0.575, 0.9])
    np.testing.assert_allclose(found.accuracy[[2, 4]], [0.5, 0.5])
    assert np.isnan(found.confidence[[0, 1, 3]]).all()
    assert found.error == pytest.approx(0.5 * 0.075 + 0.5 * 0.4)


def test_temperature_is_chosen_if_it_helps_on_other_images() -> None:
    labels, overconfident = sample(2000, temperature=2.5)
    assert choose_temperature(labels, overconfident) == pytest.approx(2.5, rel=0.15)
    assert choose_temperature(labels[:99], overconfident[:99]) == 1  # too few
    calibrated = with_temperature(overconfident, fit_temperature(labels, overconfident))
    assert choose_temperature(labels, calibrated) == 1  # nothing is left to change
    certain = np.full((200, 3), 1e-9)
    certain[:, 0] = 1
    assert choose_temperature(np.zeros(200, int), certain) == 1


def test_temperature_is_found() -> None:
    labels, probabilities = sample(20_000, temperature=2.5)
    assert fit_temperature(labels, probabilities) == pytest.approx(2.5, rel=0.05)
    labels, probabilities = sample(20_000, temperature=0.5)
    assert fit_temperature(labels, probabilities) == pytest.approx(0.5, rel=0.05)


def test_temperature_of_many_numbers_is_found_on_every_third_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels, probabilities = sample(60, temperature=2.5)
    expected = fit_temperature(labels[::3], probabilities[::3])
    monkeypatch.setattr(
        "keras_vit.tasks.classification.calibration._MOST_NUMBERS", 20 * probabilities.shape[1]
    )
    assert fit_temperature(labels, probabilities) == expected


def test_calibration_gets_better_where_there_is_something_to_mend() -> None:
    labels, probabilities = sample(5_000, temperature=3.0)
    found = calibrate(labels, probabilities)
    assert found.before.error > 0.1
    assert found.after.error < 0.03
    assert found.before.counts.sum() == found.after.counts.sum() == 5_000


def test_no_image_is_scored_with_a_temperature_that_has_seen_it() -> None:
    """Of two images each one's temperature is fitted on the other: as wrong as can be."""
    found = calibrate([0, 1], [[0.8, 0.2], [0.8, 0.2]])
    # The first one's temperature is fitted on a wrong answer, the highest; the second one's on a
    # right one, the lowest.
    assert sorted(np.round(found.after.confidence[found.after.counts > 0], 2)) == [0.52, 1.0]


def test_with_temperature_keeps_the_order() -> None:
    _, probabilities = sample(50, 1.0)
    for temperature in (0.1, 1.0, 9.0):
        scaled = with_temperature(probabilities, temperature)
        np.testing.assert_allclose(scaled.sum(axis=1), 1)
        np.testing.assert_array_equal(scaled.argmax(axis=1), probabilities.argmax(axis=1))
    np.testing.assert_allclose(with_temperature(probabilities, 1.0), probabilities, atol=1e-12)


def test_calibration_of_probabilities_that_are_nought_or_one() -> None:
    found = calibrate([0, 1, 1], np.eye(2)[[0, 1, 1]])
    assert found.before.error == found.after.error == 0.0


@pytest.mark.parametrize(
    ("labels", "bound"),
    [([0, 0, 1], 1 / 20), ([1, 1, 0], 20)],
    ids=["all_correct", "all_wrong"],
)
@pytest.mark.parametrize("confidence", [0.6, 0.9999])  # 0.9999: zero loss up to 1 / 5
def test_calibration_has_no_temperature_without_a_minimum(
    labels: list[int], bound: float, confidence: float
) -> None:
    probabilities = np.where(np.eye(2) > 0, confidence, 1 - confidence)[[0, 0, 1]]
    assert fit_temperature(labels, probabilities) == bound
    assert calibrate(labels, probabilities).temperature is None


def test_calibration_of_many_rows_and_classes() -> None:
    labels, probabilities = sample(100_000, 2.0, classes=20)
    found = calibrate(labels, probabilities.astype("float32"))
    assert found.temperature == pytest.approx(2.0, rel=0.05)
    assert found.after.error < 0.01


@pytest.mark.parametrize("labels", [[0], [], [[0, 1]]])
def test_calibration_needs_two_images(labels: list[int]) -> None:
    with pytest.raises(
        ValueError, match=r"`probabilities` must have one row per label, and at least two rows\."
    ):
        calibrate(labels, np.ones((len(labels), 2)) / 2)
