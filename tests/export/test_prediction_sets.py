"""Prediction sets are the same in every exported file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data, export, models
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.conformal import prediction_set
from keras_vit.tasks.classification.ridge_head import fit_ridge

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("phone", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_file_has_the_sets_of_the_model(phone: bool, tmp_path: Path) -> None:
    digits = data.load("digits").subset(range(120))
    config = models.size("Micro/4").replace(
        **{"num_layers": 1, "hidden_size": 24, "num_heads": 2, "mlp_dim": 30},
        **{"image_size": (8, 8), "classes": 10},
    )
    preprocessing = Preprocessing(size=(8, 8), class_names=digits.class_names)
    model = models.build(config, preprocessing=preprocessing)
    fitted = fit_ridge(models.features(model, digits), digits.targets, 10)
    model.get_layer("head").set_weights([fitted.kernel, fitted.bias])
    done = export.bundle(
        model,
        tmp_path,
        examples=digits,
        quantizations=["float32"] if phone else [],
        coverage=0.9,
        verbose=0,
    )
    images = [digits.read(i) for i in range(120)]
    served = export.load_predictor(done.saved_model).predict(images)
    sizes = [len(one.set) for one in served]
    assert set(sizes) > {1}
    covered = np.mean([digits.shown(i)[0] in one.set for i, one in enumerate(served)])
    assert 0.9 <= covered < 0.95  # of the images that the threshold was chosen on
    signatures = tf.saved_model.load(str(done.saved_model)).signatures
    answer = signatures["serving_default"](image_bytes=tf.constant([*images, b"no image"]))
    assert answer["set_size"].numpy().tolist() == [*sizes, 0]
    if not phone:
        return
    loaded = export.load_predictor(done.files / "float32.tflite")
    assert [one.set for one in loaded.predict(images)] == [one.set for one in served]
    pixels = signatures["preprocess"](image_bytes=tf.constant(images))["pixels"].numpy()
    runner = tf.lite.Interpreter(str(done.files / "float32.tflite")).get_signature_runner()
    for index, size in enumerate(sizes):
        found = runner(pixels=pixels[index : index + 1])
        assert found["set_size"].tolist() == [size]
        expected = prediction_set(found["probabilities"], loaded.preprocessing)
        np.testing.assert_array_equal(found["set"], expected)


def test_sets_of_several_labels_are_refused(tmp_path: Path) -> None:
    preprocessing = Preprocessing(size=(8, 8), class_names=tuple("abc"), thresholds=(0.5,) * 3)
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
    model = models.build(
        config.replace(classifier_activation="sigmoid"), preprocessing=preprocessing
    )
    digits = data.load("digits").subset(range(5))
    with pytest.raises(ValueError, match="`coverage` must be None unless every image has one cl"):
        export.bundle(model, tmp_path / "out", examples=digits, coverage=0.9, verbose=0)
    assert not (tmp_path / "out").exists()
