from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.export import Comparison, VerificationError, table, verification, verify
from tests.export.conftest import CONTRACT, LABELS, tiny

pytestmark = pytest.mark.tensorflow


def test_verify_compares_every_artefact(
    model: keras.Model, exported: dict[str, Path], images: list[bytes]
) -> None:
    comparisons = verify(model, list(exported.values()), images)
    assert [comparison.path for comparison in comparisons] == list(map(str, exported.values()))
    assert [comparison.tolerance for comparison in comparisons] == [1e-5, 1e-5, 1e-4]
    assert all(comparison.ok for comparison in comparisons)


def test_verify_compares_a_model_in_training_precision_like_with_like(
    exported: dict[str, Path], images: list[bytes]
) -> None:
    trained = tiny(dtype="mixed_bfloat16", classifier_activation=None)
    assert len(verify(trained, list(exported.values()), images)) == 3


@pytest.mark.parametrize("kind", ["keras", "saved_model", "tflite"])
def test_verify_fails_for_the_weights_of_another_model(
    kind: str, exported: dict[str, Path], images: list[bytes]
) -> None:
    changed = tiny()
    head = changed.get_layer("head").bias
    head.assign(head + np.eye(7)[4])
    with pytest.raises(VerificationError, match=re.escape(str(exported[kind])) + ": its proba"):
        verify(changed, [exported[kind]], images)


def test_verify_fails_for_nan(exported: dict[str, Path], images: list[bytes]) -> None:
    broken = tiny()
    broken.get_layer("head").bias.assign(np.full(7, np.nan))
    with pytest.raises(VerificationError, match="differ from those of the model by nan"):
        verify(broken, [exported["tflite"]], images)


def test_verify_fails_for_other_labels(exported: dict[str, Path], images: list[bytes]) -> None:
    other = tiny(dataclasses.replace(CONTRACT, labels=LABELS[::-1]))
    with pytest.raises(VerificationError, match=r"model.keras: its labels differ from .*'daisy'"):
        verify(other, [exported["keras"]], images)


class Shifted:
    name, labels, thresholds, tolerance = "shifted.tflite", LABELS, None, 1e-4

    def __init__(self, model: keras.Model, shifted_image: int) -> None:
        self._right = verification.KerasPredictor(model)
        self._shifted_image = shifted_image

    def predict(self, images: list[bytes], batch_size: int = 32) -> np.ndarray:
        probabilities = self._right.predict(images)
        probabilities[self._shifted_image, 3] -= 0.002
        return probabilities


def test_verify_says_what_disagrees_by_how_much_and_where(
    model: keras.Model, images: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "load_predictor", lambda path: Shifted(model, path))
    with pytest.raises(VerificationError) as error:
        verify(model, [6, 8], images)
    line = (
        "shifted.tflite: its probabilities differ from those of the model by 2.0e-03, more than "
        "the tolerance of 1e-04, most for image {} of 0 to 9."
    )
    assert str(error.value).splitlines() == [line.format(6), line.format(8)]


def test_table_has_a_line_for_each_artefact() -> None:
    comparisons = [
        Comparison("last.keras", 0.0, worst_image=0, tolerance=1e-5),
        Comparison("served/1", 2e-3, worst_image=0, tolerance=1e-5),
    ]
    assert table(comparisons).splitlines() == [
        "artefact    largest difference  tolerance",
        "last.keras             0.0e+00      1e-05  ok",
        "served/1               2.0e-03      1e-05  DIFFERS",
    ]


def test_verify_fails_for_other_thresholds(
    yes_or_no: keras.Model, images: list[bytes], tmp_path: Path
) -> None:
    yes_or_no.save(tmp_path / "model.keras")
    contract = dataclasses.replace(CONTRACT, thresholds=(0.5,) * 7)
    other = models.rebuild(yes_or_no, preprocessing=contract)
    assert len(verify(yes_or_no, [tmp_path / "model.keras"], images)) == 1
    with pytest.raises(VerificationError, match=r"model.keras: its thresholds differ .*0\.2, 0\.3"):
        verify(other, [tmp_path / "model.keras"], images)
