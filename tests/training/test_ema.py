from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training import Recipe
from keras_vit.training.ema import EvaluateAverages, averages
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.training_model import TrainingModel
from tests.helpers import in_training, numpy
from tests.training.replicas import CLASSES, examples, network


@pytest.fixture
def training_model() -> TrainingModel:
    model = network()
    recipe = Recipe(optimizer="sgd", learning_rate=0.5, warmup_fraction=0.0, ema_momentum=0.5)
    made = in_training(ClassificationObjective, model)
    # Tracing takes longer than a few steps.
    eagerly = keras.backend.backend() == "tensorflow"
    made.compile(optimizer=build_optimizer(recipe, model, 100), run_eagerly=eagerly)
    return made


def test_average_follows_the_weights(training_model: TrainingModel) -> None:
    images, labels = examples(12)
    seen = []
    for _ in range(3):
        training_model.train_on_batch(images, labels)
        seen.append(numpy(training_model.network.get_layer("head").bias).astype("float64"))
    position = [v.path for v in training_model.trainable_variables].index("head/bias")
    found = numpy(averages(training_model.optimizer)[position])
    # The first step sets it.
    np.testing.assert_allclose(found, 0.25 * seen[0] + 0.25 * seen[1] + 0.5 * seen[2], rtol=1e-5)


def test_validation_sees_the_average_and_training_goes_on_from_the_weights(
    training_model: TrainingModel,
) -> None:
    images, labels = examples(24)
    training_model.fit(images, labels, batch_size=8, epochs=2, verbose=0)
    for variable, average in zip(
        training_model.trainable_variables, averages(training_model.optimizer), strict=True
    ):
        # Keras would have ended with the average in the place of the weight.
        assert not np.array_equal(numpy(variable), numpy(average))
        average.assign(numpy(variable) * 0)
    before = [numpy(v) for v in training_model.trainable_variables]
    found = training_model.evaluate(
        images, labels, verbose=0, return_dict=True, callbacks=[EvaluateAverages()]
    )
    assert float(found["loss"]) == pytest.approx(np.log(CLASSES), abs=1e-5)  # all weights are zero
    for old, new in zip(before, training_model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, numpy(new))


def test_no_average_no_exchange() -> None:
    training_model = in_training(ClassificationObjective, network())
    training_model.compile(optimizer=keras.optimizers.SGD())
    before = training_model.get_weights()
    callback = EvaluateAverages()
    callback.set_model(training_model)
    callback.on_test_begin()
    callback.on_test_end()
    for old, new in zip(before, training_model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
