from __future__ import annotations

import shutil
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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels.txt", "daisy\n", r"one line for each of the 7 classes .* 1 lines"),
        ("thresholds.txt", "0.5\n" * 6 + "half\n", r"a number in each line .* 'half' in line 7"),
    ],
)
def test_saved_model_predictor_rejects_texts_of_others(
    exported_yes_or_no: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = shutil.copytree(exported_yes_or_no, tmp_path / "1")
    (folder / "assets" / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        SavedModelPredictor(folder)


def test_saved_model_predictor_rejects_one_from_elsewhere(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), tmp_path)
    with pytest.raises(ValueError, match=r"exported by keras_vit, with assets/prepro"):
        SavedModelPredictor(tmp_path)
