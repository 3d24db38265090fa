from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification import out_of_distribution
from keras_vit.tasks.classification.prediction import prediction
from keras_vit.tasks.classification.task import Classification
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.task import Predictions

SCORED = Preprocessing(class_names=("a", "b"), ood_threshold=1.5, false_alarm_rate=0.1)
TRAINING = data.load("digits").subset(range(2))
ROWS = np.array([[0.25, 0.75, 1.5], [0.5, 0.5, 1.6]], "f")


def test_scores_are_the_last_column() -> None:
    probabilities, scores, neighbors = out_of_distribution.split(ROWS, SCORED)
    assert (probabilities.shape, scores.tolist()) == ((2, 2), pytest.approx([1.5, 1.6]))
    assert neighbors.shape == (2, 0)
    assert out_of_distribution.split(ROWS, Preprocessing())[1] is None
    found = out_of_distribution.outputs({"ood_score": scores}, SCORED)
    assert found["in_distribution"].tolist() == [True, False]
    assert out_of_distribution.outputs({}, Preprocessing()) == {}


def test_prediction_tells_images_unlike_the_training_images() -> None:
    inside, outside = (prediction(row, SCORED) for row in ROWS)
    assert (inside.in_distribution, inside.text()) == (True, "b 0.7500   a 0.2500")
    assert outside.text() == "a 0.5000   b 0.5000   out of distribution (score 1.60)"
    row = Classification(None).table(SCORED).rows("x.jpg", outside)[0]
    assert (row["ood_score"], row["in_distribution"]) == (pytest.approx(1.6), False)


def test_prediction_names_the_nearest_training_images() -> None:
    preprocessing = Preprocessing(class_names=("a", "b"), training_images=("x", "y", "z"))
    found = prediction(np.array([0.25, 0.75, 0.9, 0.8, 0.1, 2, 0, 1], "f"), preprocessing)
    assert found.nearest == ("z", "x", "y")
    assert found.text() == "b 0.7500   a 0.2500   like z, x, y"
    row = Classification(None).table(preprocessing).rows("x.jpg", found)[0]
    assert [row[f"nearest_{place}"] for place in (1, 2, 3)] == ["z", "x", "y"]


def test_names_of_training_images_that_are_not_utf_8_are_escaped() -> None:
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=10)
    examples = data.load("digits").subset(range(23))
    named = dataclasses.replace(examples, names=("caf\udce9.png", "é", *map(str, range(21))))
    options = Confidence(None, None, True, False, lambda: named, examples)
    predictions = Predictions(examples.targets, np.zeros((23, 10), "f"), Preprocessing(size=(8, 8)))
    _, found = out_of_distribution.add_scores(models.build(config), predictions, options, 0)
    assert found.preprocessing.training_images[:3] == ("caf\\udce9.png", "é", "0")
    assert found.outputs.shape == (23, 10 + 3)


def test_two_classifiers_are_refused() -> None:
    config = models.size("Micro/4").replace(
        **{"num_layers": 1, "image_size": (8, 8), "classes": 2},
        **{"distillation_token": True, "distillation_head": True},
    )
    with pytest.raises(ValueError, match=r"`model` must have one Dense layer as classifier .* 2$"):
        out_of_distribution.scored_network(models.build(config), SCORED, TRAINING)


@pytest.mark.tensorflow
def test_files_must_agree_on_what_is_in_distribution() -> None:
    expected = Predictions(np.array([1, 0]), ROWS, SCORED)
    found = ROWS + np.array([0, 0, -0.2], "f")
    same, accuracy = Classification(None).agreement(found, expected, 0.0)
    assert (same.tolist(), accuracy) == ([True, False], 1.0)
