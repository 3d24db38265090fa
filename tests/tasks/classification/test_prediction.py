from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.export import Prediction, load_predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification import prediction as predictions
from tests.export.conftest import LABELS
from tests.export.conftest import images as images
from tests.export.conftest import model as model
from tests.export.conftest import yes_or_no as yes_or_no

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_predictions_name_the_best_classes(model: keras.Model, images: list[bytes]) -> None:
    predictor = load_predictor(model)
    found = predictor.predict(images)
    expected = predictor.probabilities(images)
    for prediction, row in zip(found, expected, strict=True):
        best = np.argsort(-row)[:5]
        assert prediction.top_labels == tuple(LABELS[i] for i in best)
        np.testing.assert_array_equal(prediction.top_scores, row[best])
        assert prediction.label == LABELS[row.argmax()]
        assert prediction.present is None


def test_predictions_of_several_labels_name_all_that_are_present(
    yes_or_no: keras.Model, images: list[bytes]
) -> None:
    predictor = load_predictor(yes_or_no)
    for prediction, row in zip(
        predictor.predict(images), predictor.probabilities(images), strict=True
    ):
        yes = {LABELS[i] for i in np.flatnonzero(row >= np.float32(predictor.thresholds))}
        assert set(prediction.present or ()) == yes


def test_fewer_names_than_outputs_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"one name for each of the 3 outputs .* Received: 2 cl"):
        predictions.prediction(np.zeros(3), Preprocessing(class_names=("a", "b")))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "rose 0.6000   daisy 0.4000"),
        ({"present": ("rose",)}, "rose 0.6000"),
        ({"present": ()}, "none of the labels"),
        ({"message": "The image is empty"}, "The image is empty"),
    ],
)
def test_text_is_a_line(changes: dict, text: str) -> None:
    probabilities = np.array([0.4, 0.6], np.float32)
    assert Prediction(probabilities, ("rose", "daisy"), (0.6, 0.4), **changes).text() == text


def test_text_has_the_probabilities_of_classes_of_the_same_name() -> None:
    prediction = Prediction(np.array([0.1, 0.7, 0.2]), ("crane", "crane", "owl"), (0.7, 0.2, 0.1))
    assert prediction.text() == "crane 0.7000   crane 0.2000   owl 0.1000"


def test_image_refused_by_a_server_has_no_labels() -> None:
    response = {
        "probabilities": np.array([[0.25, 0.75], [0, 0], [0, 0]], "float32"),
        "top_labels": np.array([["rose", "daisy"], ["", ""], ["", ""]]),
        "top_scores": np.array([[0.75, 0.25], [0, 0], [0, 0]]),
        "top_indices": np.array([[1, 0], [0, 0], [0, 0]]),
        "present": np.array([[False, True], [False, False], [False, False]]),
        "ok": np.array([True, False, False]),
        "message": np.array(["", "damaged", ""]),
    }
    good, *refused = predictions.served_predictions(response)
    assert (good.top_labels, good.present, good.message) == (("rose", "daisy"), ("rose",), "")
    assert [one.message for one in refused] == ["damaged", "refused by the server"]
    for one in refused:
        assert (one.top_labels, one.top_scores, one.present, one.set) == ((), (), None, None)
        assert one.probabilities.tolist() == [0, 0]
        (row,) = predictions.Scores().rows("a.jpg", one)
        expected = {"file": "a.jpg", "label": None, "score": None, "message": one.message}
        assert row == expected


def test_text_names_as_many_as_asked() -> None:
    prediction = Prediction(np.array([0.4, 0.6]), ("rose", "daisy"), (0.6, 0.4))
    assert prediction.text(top=1) == "rose 0.6000"
