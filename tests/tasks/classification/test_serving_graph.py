from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import preprocessing_files
from keras_vit.data.decode_and_resize import prepare
from keras_vit.data.image_reading import Limits
from keras_vit.models import last_activation
from keras_vit.tasks.classification.serving_graph import ServedClassifier
from keras_vit.visualization import relevance_maps
from tests.export.conftest import PREPROCESSING, tiny
from tests.export.conftest import images as images
from tests.export.conftest import model as model

pytestmark = pytest.mark.tensorflow


def served(model: keras.Model, folder: Path) -> ServedClassifier:
    network, preprocessing = last_activation.with_probabilities(model)
    preprocessing_files.write_preprocessing(preprocessing, folder)
    return ServedClassifier(network, preprocessing, "probabilities", folder, Limits())


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 2},
        pytest.param({"pooling": "map"}, marks=pytest.mark.slow),
        pytest.param({"pooling": "gap", "class_token": False}, marks=pytest.mark.slow),
        pytest.param({"register_tokens": 2, "distillation_token": True}, marks=pytest.mark.slow),
    ],
    ids=["class token", "attention pooling", "mean", "registers"],
)
def test_explain_and_embed_are_what_looking_inside_tells(
    changes: dict[str, Any], images: list[bytes], tmp_path: Path
) -> None:
    model = tiny(**changes)
    server = served(model, tmp_path)
    sent = tf.constant([*images, b"text"])
    scaled = np.stack([prepare(image, PREPROCESSING) for image in images])
    explained, known = server.explain(sent), server.embed(sent)
    # measured: 6e-8
    np.testing.assert_allclose(
        explained["map"][:-1], relevance_maps(model, scaled, "rollout"), atol=1e-6
    )
    expected = last_activation.with_probabilities(model)[0].predict(scaled, verbose=0)
    np.testing.assert_allclose(explained["probabilities"][:-1], expected, atol=1e-6)
    pools = {"mean": "gap", "token": "token"}
    assert set(known) - {"ok", "message"} == ({"mean"} if "class_token" in changes else set(pools))
    for name in set(known) & set(pools):
        features = keras_vit.features(model, scaled, layers=[-1], pool=pools[name])[-1]
        np.testing.assert_allclose(known[name][:-1], features, atol=1e-5)
    for answer in (explained, known):
        assert not any(np.any(value[-1]) for name, value in answer.items() if name != "message")


def test_classifying_with_variables_computes_no_unused_tokens(tmp_path: Path) -> None:
    graph = served(tiny(num_layers=2), tmp_path)._answer_once.get_concrete_function().graph
    products = [op for op in graph.get_operations() if op.type in ("MatMul", "BatchMatMulV2")]
    assert len(products) == 1 + 2 * 6 + 1  # patches, blocks, classifier


def test_other_networks_are_served_without_what_looks_inside(
    images: list[bytes], tmp_path: Path
) -> None:
    inputs = keras.Input((10, 14, 3))
    scaled = keras_vit.layers.ModelMetadata(PREPROCESSING)(inputs)
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(5, 3)(scaled))
    model = keras.Model(inputs, keras.layers.Dense(7, activation="softmax")(pooled))
    server = served(model, tmp_path)
    assert set(server.signatures()) == {
        *("serving_default", "classify_bytes", "classify_pixels", "classify_float", "preprocess")
    }
    answer = server.answer_bytes(tf.constant(images))
    prepared = np.stack([prepare(image, PREPROCESSING) for image in images])
    np.testing.assert_allclose(
        answer["probabilities"], model.predict(prepared, verbose=0), atol=1e-6
    )
