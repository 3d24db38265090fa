from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.data import pixels
from keras_vit.export import KerasPredictor
from tests.export.conftest import CONTRACT

pytestmark = pytest.mark.tensorflow


def test_keras_predictor_prepares_images_and_calls_predict(
    model: keras.Model, images: list[bytes]
) -> None:
    prepared = np.stack([pixels.prepare(image, CONTRACT) for image in images])
    expected = model.predict(prepared, verbose=0)
    np.testing.assert_array_equal(KerasPredictor(model).predict(images), expected)


def test_keras_predictor_has_the_name_of_the_model_or_of_its_file(model: keras.Model) -> None:
    assert KerasPredictor(model).name == "vit"
    assert KerasPredictor(model, name="runs/last.keras").name == "runs/last.keras"
