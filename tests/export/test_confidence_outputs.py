"""Prediction sets and out-of-distribution scores are the same in every exported file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data, export, models, training
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.conformal import prediction_set
from tests.training.conftest import nano as nano

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("phone", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_file_has_the_sets_and_scores_of_the_model(
    phone: bool, nano: str, tmp_path: Path
) -> None:
    digits = data.load("digits")
    for index in range(200):
        path = tmp_path / "digits" / digits.shown(index)[0] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(digits.read(index))
    recipe = training.recipe("probe").replace(image_size=(8, 8), precision="float32")
    config = training.RunConfig(str(tmp_path / "digits"), nano, recipe=recipe)
    training.train(config, tmp_path / "run", tensorboard=False)
    done = export.bundle(
        tmp_path / "run",
        tmp_path / "serving",
        quantizations=["float32", "dynamic_range"] if phone else [],
        runtimes=["onnx", "openvino"] if phone else [],
        coverage=0.9,
        false_alarm_rate=0.1,
        nearest_images=True,
        min_agreement=0.8,
        verbose=0,
    )
    # Of scores of about 1; measured: 1e-6 in float32.
    assert [r.largest_difference < 1e-5 for r in done.results if r.name != "dynamic_range"]
    run = training.Run(tmp_path / "run")
    held_out = run.examples("validation")
    images = [held_out.read(i) for i in range(len(held_out))]
    served = export.load_predictor(done.saved_model).predict([*images, b"no image"])
    unread, sizes = served.pop(), [len(one.set) for one in served]
    assert (unread.ok, unread.set, unread.ood_score) == (False, None, None)
    assert set(sizes) > {1}
    covered = np.mean([held_out.shown(i)[0] in one.set for i, one in enumerate(served)])
    assert 0.9 <= covered < 0.98  # of the images that the threshold was chosen on
    assert [one.in_distribution for one in served].count(False) == 3  # 10% of 40, less one
    noise = np.random.default_rng(5).integers(0, 256, (9, 8, 8, 3), "uint8")
    far = export.load_predictor(done.saved_model).predict([*noise])
    assert sum(one.in_distribution for one in far) <= 1
    assert f"   out of distribution (score {far[0].ood_score:.2f})   like " in far[0].text()
    trained = run.examples("train")
    of_itself = export.load_predictor(done.saved_model).predict([trained.read(7)])[0]
    assert (of_itself.nearest[0], len(of_itself.nearest)) == (trained.names[7], 3)

    signatures = tf.saved_model.load(str(done.saved_model)).signatures
    answer = signatures["serving_default"](image_bytes=tf.constant([*images, b"no image"]))
    assert answer["set_size"].numpy().tolist() == [*sizes, 0]
    inside = answer["in_distribution"].numpy().tolist()
    assert inside == [*(one.in_distribution for one in served), False]
    names = answer["nearest_images"].numpy()[:-1].astype(str).tolist()
    assert names == [list(one.nearest) for one in served]
    for kind in ("embed", "explain"):
        assert signatures[kind](image_bytes=tf.constant(images[:1]))["ok"].numpy().all()
    if not phone:
        return
    for name in ("float32.tflite", "model.onnx", "model.xml"):
        loaded = export.load_predictor(done.files / name)
        found = loaded.predict(images)
        assert [one.set for one in found] == [one.set for one in served]
        assert [one.in_distribution for one in found] == inside[:-1]
        assert [one.nearest for one in found] == [one.nearest for one in served]
    pixels = signatures["preprocess"](image_bytes=tf.constant(images))["pixels"].numpy()
    path = done.files / "float32.tflite"
    loaded = export.load_predictor(path)
    runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    for index, size in enumerate(sizes):
        found = runner(pixels=pixels[index : index + 1])
        assert found["set_size"].tolist() == [size]
        expected = prediction_set(found["probabilities"], loaded.preprocessing)
        np.testing.assert_array_equal(found["set"], expected)
        assert found["in_distribution"].tolist() == [inside[index]]


def test_sets_of_several_labels_are_refused(tmp_path: Path) -> None:
    preprocessing = Preprocessing(size=(8, 8), class_names=tuple("abc"), thresholds=(0.5,) * 3)
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
    model = models.build(
        config.replace(classifier_activation="sigmoid"), preprocessing=preprocessing
    )
    digits = data.load("digits").subset(range(5))
    with pytest.raises(
        ValueError, match="`coverage` must be left out unless every image has one cl"
    ):
        export.bundle(model, tmp_path / "out", examples=digits, coverage=0.9, verbose=0)
    assert not (tmp_path / "out").exists()
