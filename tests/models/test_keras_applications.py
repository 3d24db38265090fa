from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.models.keras_applications import (
    application_names,
    application_preprocessing,
    build_application,
)
from keras_vit.runs import history
from keras_vit.tasks.build import check_model
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.task import inference_classifier
from keras_vit.tasks.evaluate import evaluate
from keras_vit.training import Recipe, Run, RunConfig, train
from tests.helpers import assert_close, numpy
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

LABELS = ("ant", "bee", "cow")
PIXELS = np.random.default_rng(3).integers(0, 256, (2, 32, 48, 3)).astype("float32")


def test_offline_holds_for_the_downloads_of_keras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = urllib.request._opener  # type: ignore[attr-defined]
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    with pytest.raises(ConnectionError, match=r"OFFLINE forbids the download of https://storage"):
        build_application("MobileNetV2", LABELS, weights="imagenet")
    assert urllib.request._opener is opener  # type: ignore[attr-defined]


def test_failed_download_says_where_the_file_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise urllib.error.URLError("unreachable")

    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    monkeypatch.setattr("keras.src.utils.file_utils.urlretrieve", fail)
    with pytest.raises(ConnectionError, match=r"URL fetch failure .* folder models of KERAS_HOME"):
        build_application("MobileNetV2", LABELS, weights="imagenet")


@pytest.mark.parametrize("name", application_names())
def test_application_preprocessing_is_that_of_keras(name: str) -> None:
    import sys

    preprocessing = application_preprocessing(name, (32, 48))
    function = sys.modules[getattr(keras.applications, name).__module__].preprocess_input
    # Measured: 1.5e-5, of values up to 255.
    assert_close(
        preprocessing.scale(preprocessing.to_rgb(PIXELS)), function(PIXELS.copy()), 3e-5, name
    )


def test_application_preprocessing_of_a_stranger() -> None:
    with pytest.raises(ValueError, match=r"`name` must be one of .*Did you mean 'ResNet50'"):
        application_preprocessing("ResNet05", (32, 48))


@pytest.fixture(scope="module")
def network() -> keras.Model:
    return build_application("MobileNetV2", LABELS, image_size=(32, 48))


def test_build_application_carries_labels_and_preprocessing(network: keras.Model) -> None:
    preprocessing = models.preprocessing_of(network)
    assert (preprocessing.class_names, preprocessing.size) == (LABELS, (32, 48))
    assert not models.has_config(network)
    # A head of zeros: every class is as likely.
    assert_close(network(preprocessing.scale(PIXELS)), np.zeros((2, 3)), 0.0)


@pytest.mark.slow
def test_a_network_with_operations_in_its_graph_is_finished_too() -> None:
    network = build_application("MobileNetV3Small", LABELS, image_size=(32, 48))
    inputs = models.preprocessing_of(network).scale(PIXELS)
    assert_close(inference_classifier(network)(inputs), np.full((2, 3), 1 / 3), 1e-6)


@pytest.mark.slow
def test_frozen_batch_normalization_uses_what_it_has(network: keras.Model) -> None:
    from keras_vit.training.param_groups import set_trainable

    network = build_application("MobileNetV2", LABELS, image_size=(32, 48))
    inputs = models.preprocessing_of(network).scale(PIXELS)
    moving = [w for w in network.weights if "moving" in w.path]
    set_trainable(network, ["head/*"])
    before = [numpy(w).copy() for w in moving]
    network(inputs, training=True)
    assert all(np.array_equal(numpy(w), old) for w, old in zip(moving, before, strict=True))
    set_trainable(network, ["*"])
    network(inputs, training=True)
    assert not any(np.array_equal(numpy(w), old) for w, old in zip(moving, before, strict=True))


@pytest.mark.slow
def test_finished_application_answers_with_probabilities(network: keras.Model) -> None:
    half = build_application("MobileNetV2", LABELS, image_size=(32, 48), dtype="mixed_bfloat16")
    half.set_weights(network.get_weights())
    half.layers[-1].set_weights([np.random.default_rng(1).normal(size=(1280, 3)), np.ones(3)])
    inputs = models.preprocessing_of(half).scale(PIXELS)
    finished = inference_classifier(half)
    assert finished.compute_dtype == "float32"
    probabilities = numpy(finished(inputs))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    logits = numpy(half(inputs))
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    # bfloat16 keeps 8 bits, over 50 layers; measured 0.02.
    assert_close(probabilities, expected, 0.06)
    assert [w.shape for w in finished.weights] == [w.shape for w in half.weights]


def test_network_of_a_configuration_may_be_an_application() -> None:
    recipe = Recipe(image_size=(32, 48), precision="float32")
    config = RunConfig("photos", "MobileNetV2", recipe=recipe)
    network = build_network(config, LABELS, multi_label=True)
    assert models.preprocessing_of(network).thresholds == (0.5,) * 3


def test_check_model_knows_both_kinds() -> None:
    check_model("ViTTi16")
    check_model("ResNet50")
    with pytest.raises(ValueError, match=r"Did you mean .* Options: 'ViT.*'ResNet50'"):
        check_model("ResNet51")


@pytest.mark.slow
def test_an_application_is_trained_saved_and_evaluated(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    recipe = Recipe(epochs=2, batch_size=8, image_size=(32, 32), precision="float32")
    config = RunConfig(str(photos), "MobileNetV2", recipe=recipe)
    report = train(config, tmp_path / "run", tensorboard=False)
    run = Run(tmp_path / "run")
    model = keras.saving.load_model(run.last)
    assert evaluate(model, data.load(photos), verbose=0).num_examples == 33
    assert report.num_examples == 7
    fresh = build_application("MobileNetV2", LABELS, image_size=(32, 32))
    moved = [
        not np.array_equal(numpy(new), numpy(old))
        for new, old in zip(model.weights, fresh.weights, strict=True)
        if "moving" in new.path
    ]
    assert all(moved)  # batch normalization has counted, as in Keras' own `fit`
    assert len(moved) == 104
    assert [row["epoch"] for row in history.read_rows(run.times)] == [0, 1]
    assert all(0 < row["training_seconds"] < row["seconds"] for row in history.read_rows(run.times))


@pytest.mark.slow
def test_means_of_batch_normalization_are_not_trained() -> None:
    from keras_vit.training.param_groups import set_trainable

    network = build_application("MobileNetV2", LABELS, image_size=(32, 48))
    before = {v.path for v in network.trainable_weights}
    set_trainable(network, ["*"])
    assert {v.path for v in network.trainable_weights} == before
    assert not any("moving" in path for path in before)
