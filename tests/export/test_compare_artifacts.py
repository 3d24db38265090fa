from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.data import Examples
from keras_vit.export import VerificationError, compare_artifacts, tflite
from keras_vit.export.compare_artifacts import Artifact, ArtifactComparison, table, verify
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.registry import trained_model
from keras_vit.tasks.task import Predictions
from tests.export.conftest import PREPROCESSING

pytestmark = pytest.mark.tensorflow

TRUTH = np.array([0, 1, 2, 3, 4, 5, 6, 0, 1, 2])


def artifacts(exported: dict[str, Path]) -> list[Artifact]:
    return [
        Artifact("saved_model", "saved_model", exported["saved_model"]),
        Artifact("float32", "tflite", exported["tflite"]),
    ]


@pytest.mark.slow
def test_verify_compares_image_by_image_in_another_process(
    exported: dict[str, Path], expected: np.ndarray, labeled: Examples, tmp_path: Path
) -> None:
    served, phone = verify(
        artifacts(exported),
        labeled,
        Predictions(TRUTH, expected, PREPROCESSING),
        tmp_path,
        progress=False,
    )
    assert served.ok
    assert served.largest_difference < 1e-6  # measured: 3e-7
    assert phone.ok
    assert phone.largest_difference < 1e-5  # measured: 3e-7
    assert served.accuracy == phone.accuracy == np.mean(expected.argmax(axis=1) == TRUTH)
    assert phone.size == exported["tflite"].stat().st_size
    assert set(phone.milliseconds) == {"1", "2"}
    assert set(served.milliseconds) == {"all"}


SCORES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], np.float32)


def compared(found: np.ndarray, kind: str = "saved_model", **options: Any) -> ArtifactComparison:
    artifact = Artifact("artifact", kind, Path(__file__), options.pop("min_agreement", None))
    preprocessing = Preprocessing(thresholds=options.pop("thresholds", None))
    truth = options.pop("truth", np.array([0, 1, 0]))
    expected = Predictions(truth, SCORES, preprocessing)
    return compare_artifacts.compared(artifact, {}, found, expected)


def test_a_wrong_probability_is_found() -> None:
    wrong = SCORES.copy()
    wrong[1, 2] += 3e-5
    served = compared(wrong)
    assert (served.ok, served.worst, served.agreement) == (False, 1, 1.0)
    assert served.largest_difference == pytest.approx(3e-5, rel=0.01)
    assert compared(wrong, "tflite").ok  # other runtimes have a tolerance of 1e-4


def test_another_class_is_found() -> None:
    other = compared(SCORES[:, ::-1], "tflite", min_agreement=0.99)
    assert (other.ok, other.agreement) == (False, pytest.approx(1 / 3))
    assert compared(SCORES[:, ::-1], "tflite", min_agreement=0.3).ok


def test_accuracy_is_that_of_the_classes_it_names() -> None:
    assert compared(SCORES).accuracy == pytest.approx(2 / 3)


def test_equally_probable_classes_are_no_disagreement() -> None:
    tied = SCORES.copy()
    tied[2] = [0.4, 0.3, 0.4 - 2e-6]
    found = tied.copy()
    found[2] = tied[2, ::-1]
    artifact = Artifact("artifact", "saved_model", Path(__file__))
    expected = Predictions(np.array([0, 1, 0]), tied, Preprocessing())
    result = compare_artifacts.compared(artifact, {}, found, expected)
    assert (result.ok, result.agreement) == (True, 1.0)


def test_labels_of_their_own_agree_by_their_thresholds() -> None:
    thresholds = (0.25, 0.5, 0.35)
    truth = (np.asarray(thresholds, np.float32) <= SCORES).astype(int)
    truth[1] = 1 - truth[1]
    result = compared(SCORES, truth=truth, thresholds=thresholds)
    assert (result.ok, result.agreement) == (True, 1.0)
    assert result.accuracy == pytest.approx(2 / 3)
    moved = SCORES.copy()
    moved[2, 0] = 0.24  # below its threshold
    assert compared(moved, thresholds=thresholds, truth=truth).agreement == pytest.approx(2 / 3)
    below = SCORES - 1e-6
    assert compared(below, thresholds=(0.7, 0.5, 0.3), truth=truth).ok  # rounding at a threshold


def test_not_a_number_never_agrees() -> None:
    result = compared(np.full_like(SCORES, np.nan), min_agreement=0)
    assert not result.ok
    assert result.to_json()["largest_difference"] is None  # NaN is not in JSON


@pytest.mark.slow
def test_a_batch_of_several_and_whole_numbers_are_read_as_they_are(
    model: keras.Model,
    exported: dict[str, Path],
    images: list[bytes],
    expected: np.ndarray,
    labeled: Examples,
    tmp_path: Path,
) -> None:
    converter = tflite.TFLiteConverter(
        trained_model(model), tmp_path / "traced", images, batch_size=3
    )
    several = [
        Artifact(
            quantization,
            "tflite",
            converter.write(quantization, tmp_path / f"{quantization}.tflite"),
            min_agreement=0,
        )
        for quantization in ("dynamic_range", "int8")
    ]
    results = verify(
        [artifacts(exported)[0], *several],
        labeled,
        Predictions(TRUTH, expected, PREPROCESSING),
        tmp_path / "work",
        progress=False,
    )
    assert all(0 < result.largest_difference < 0.3 for result in results[1:])
    assert results[2].agreement > 0.6  # each row of a batch has its own image


@pytest.mark.slow
def test_a_file_that_does_not_load_is_told_with_what_was_said(
    exported: dict[str, Path], labeled: Examples, tmp_path: Path
) -> None:
    (tmp_path / "half.tflite").write_bytes(exported["tflite"].read_bytes()[:1000])
    broken = [artifacts(exported)[0], Artifact("half", "tflite", tmp_path / "half.tflite")]
    with pytest.raises(
        VerificationError, match=r"half could not be run in a separate process: .*\(ValueError\)"
    ):
        verify(
            broken,
            labeled,
            Predictions(TRUTH, np.zeros((10, 7)), PREPROCESSING),
            tmp_path / "work",
            progress=False,
        )


@pytest.mark.slow
def test_an_image_that_the_server_refuses_is_told(
    exported: dict[str, Path], labeled: Examples, tmp_path: Path
) -> None:
    examples = labeled.subset([0, 1])
    examples = dataclasses.replace(examples, encoded=(examples.encoded[0], b"text"))
    with pytest.raises(VerificationError, match=r"1\.png was refused: The image is not a JPEG"):
        verify(
            artifacts(exported)[:1],
            examples,
            Predictions(TRUTH[:2], np.zeros((2, 7)), PREPROCESSING),
            tmp_path,
            progress=False,
        )


def test_table_has_a_line_for_each_artifact() -> None:
    results = [
        ArtifactComparison("saved_model", 30 * 2**20, {"all": 40.25}, 0.97, 1.0, 3e-7, 0, True),
        ArtifactComparison(
            "dynamic_range", 6 * 2**20, {"1": 9.0, "2": 6.0}, 0.96, 0.985, 0.2, 3, False
        ),
    ]
    assert table(results).splitlines() == [
        "artifact        MiB   1 thread  2 threads  accuracy  agreement  difference",
        "saved_model    30.0  all cores    40.2 ms    0.9700     1.0000     3.0e-07",
        "dynamic_range   6.0     9.0 ms     6.0 ms    0.9600     0.9850     2.0e-01  REFUSED",
    ]
