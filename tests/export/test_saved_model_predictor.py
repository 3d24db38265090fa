from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import KerasPredictor, SavedModelPredictor

pytestmark = pytest.mark.tensorflow


def test_saved_model_predictor_equals_the_model(
    model: keras.Model, exported: dict[str, Path], images: list[bytes]
) -> None:
    predictor = SavedModelPredictor(exported["saved_model"])
    expected = KerasPredictor(model).predict(images)
    np.testing.assert_allclose(predictor.predict(images), expected, atol=1e-6)


def test_saved_model_predictor_rejects_one_from_elsewhere(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), tmp_path)
    with pytest.raises(ValueError, match=r"exported by keras_vit, with assets/prepro"):
        SavedModelPredictor(tmp_path)
