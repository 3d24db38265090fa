from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.data.pipeline import read_pixels
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.evaluate import evaluate, evaluate_in_detail
from tests.helpers import randomise, tiny_model

pytestmark = pytest.mark.tensorflow

PREPROCESSING = Preprocessing(size=(15, 14), class_names=("ant", "bee", "cow"))


def model(**changes: object) -> keras.Model:
    config = models.config_of(tiny_model()).replace(classes=3, **changes)
    return randomise(models.build(config, preprocessing=PREPROCESSING))


@pytest.mark.slow
def test_details_agree_with_evaluate(photos: Path) -> None:
    examples = data.load(photos)
    trained = model()
    found = evaluate_in_detail(trained, examples)
    assert found.scores.to_json() == evaluate(trained, examples, verbose=0).to_json()
    assert found.calibration.before.counts.sum() == 33
    assert found.slices == ()
    json.dumps(found.to_json())


@pytest.mark.slow
def test_mistakes_are_the_surest_ones_with_what_was_seen(photos: Path) -> None:
    examples = data.load(photos)
    trained = model()
    labels, probabilities, _ = predict(trained, examples, verbose=0)
    found = evaluate_in_detail(trained, examples).mistakes
    wrong = probabilities.argmax(axis=1) != labels
    surest = np.sort(probabilities.max(axis=1)[wrong])[::-1][:12]
    np.testing.assert_allclose([mistake.confidence for mistake in found], surest, rtol=1e-6)
    for mistake in found:
        index = examples.names.index(mistake.name)
        assert mistake.true == examples.shown(index)[0]
        assert mistake.predicted == PREPROCESSING.class_names[probabilities[index].argmax()]
        np.testing.assert_array_equal(
            mistake.pixels, read_pixels([examples.read(index)], PREPROCESSING)[0]
        )
        assert mistake.explained.shape == (15, 14, 3)
        assert mistake.explained.dtype == np.uint8


@pytest.mark.slow
def test_a_model_that_is_right_has_no_mistakes() -> None:
    digits = data.load("digits").subset(np.flatnonzero(data.load("digits").targets == 3)[:5])
    sure = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=10))
    head = sure.get_layer("head")
    head.set_weights([head.get_weights()[0], 9.0 * np.eye(10)[3]])
    found = evaluate_in_detail(sure, digits)
    assert found.mistakes == ()
    assert found.scores.accuracy == 1.0
    assert [row.name for row in found.scores.per_class] == ["3"]  # one class only


@pytest.mark.slow
def test_slices_are_the_columns_of_the_data(photos: Path) -> None:
    examples = data.load(photos)
    columns = {"camera": tuple("phone" if k % 3 else "reflex" for k in range(33))}
    found = evaluate_in_detail(model(), dataclasses.replace(examples, columns=columns))
    assert [(row.value, row.images) for row in found.slices] == [("phone", 22), ("reflex", 11)]


@pytest.mark.slow
def test_confidence_of_classes_that_do_not_exclude_one_another_is_left_alone(
    photos: Path,
) -> None:
    assert (
        evaluate_in_detail(model(classifier_activation="sigmoid"), data.load(photos)).calibration
        is None
    )


@pytest.mark.slow
def test_several_labels_have_scores_of_their_own(photos: Path) -> None:
    examples = data.load(photos)
    several = dataclasses.replace(examples, targets=np.eye(3, dtype=int)[examples.targets])
    found = evaluate_in_detail(model(classifier_activation="sigmoid"), several)
    assert found.scores.num_examples == 33
    json.dumps(found.to_json())


@pytest.mark.slow
def test_a_network_without_blocks_has_mistakes_without_maps(photos: Path) -> None:
    from keras_vit.models.keras_applications import build_application

    network = build_application("MobileNetV2", PREPROCESSING.class_names, image_size=(32, 32))
    found = evaluate_in_detail(network, data.load(photos))
    assert found.mistakes
    assert all(mistake.explained is None for mistake in found.mistakes)
