from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import KerasPredictor, Predictor, SavedModelPredictor, TFLitePredictor
from keras_vit.export.predictor import checked
from tests.export.conftest import LABELS

pytestmark = pytest.mark.tensorflow

KINDS = ["keras", "saved_model", "tflite"]


@pytest.fixture(params=KINDS)
def predictor(request: pytest.FixtureRequest, model, exported: dict[str, Path]) -> Predictor:
    kinds = {
        "keras": lambda: KerasPredictor(model),
        "saved_model": lambda: SavedModelPredictor(exported["saved_model"]),
        "tflite": lambda: TFLitePredictor(exported["tflite"]),
    }
    return kinds[request.param]()


def test_predict_does_not_depend_on_the_batches(predictor: Predictor, images: list[bytes]) -> None:
    whole = predictor.predict(images)
    assert (whole.dtype, whole.shape) == (np.float32, (10, 7))
    assert predictor.labels == LABELS
    np.testing.assert_allclose(predictor.predict(images, batch_size=3), whole, atol=1e-6)
    np.testing.assert_allclose(predictor.predict(images[::-1])[::-1], whole, atol=1e-6)


def test_predict_names_the_image_that_does_not_decode(
    predictor: Predictor, images: list[bytes]
) -> None:
    with pytest.raises(
        ValueError, match=r"`images\[2\]` must be a complete JPEG.* 9 bytes .*b'not "
    ):
        predictor.predict([images[0], images[1], b"not an im", images[3]], batch_size=2)
    with pytest.raises(ValueError, match=r"`images\[1\]` must be a complete JPEG"):
        predictor.predict([images[1], images[0][:-40]])


def test_predict_needs_an_image(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match=r"`images` must hold at least one encoded image"):
        predictor.predict([])


def test_checked_passes_other_errors_on(images: list[bytes]) -> None:
    error = tf.errors.InvalidArgumentError(None, None, "something else")
    with pytest.raises(type(error), match="something else"), checked(images):
        raise error
