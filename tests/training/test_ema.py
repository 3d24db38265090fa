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
    # The first step sets it; the momentum of the next is (1 + t) / (10 + t), below 0.5.
    expected = seen[0]
    for momentum, weights in zip((2 / 11, 3 / 12), seen[1:], strict=True):
        expected = momentum * expected + (1 - momentum) * weights
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_momentum_rises_to_that_of_the_recipe(training_model: TrainingModel) -> None:
    images, labels = examples(12)
    optimizer = training_model.optimizer
    training_model.train_on_batch(images, labels)
    optimizer.iterations.assign(9)  # 10 / 19 is above 0.5
    before = [numpy(average) for average in averages(optimizer)]
    training_model.train_on_batch(images, labels)
    after = averages(optimizer)
    for old, weight, new in zip(before, training_model.trainable_variables, after, strict=True):
        np.testing.assert_allclose(numpy(new), 0.5 * old + 0.5 * numpy(weight), atol=1e-6)


@pytest.mark.slow
def test_average_of_a_short_run_is_close_to_its_weights() -> None:
    model = network()
    recipe = Recipe(optimizer="sgd", learning_rate=0.5, warmup_fraction=0.0, ema_momentum=0.9999)
    training_model = in_training(ClassificationObjective, model)
    training_model.compile(optimizer=build_optimizer(recipe, model, 30))
    images, labels = examples(12)
    start = [numpy(v) for v in training_model.trainable_variables]
    for _ in range(30):
        training_model.train_on_batch(images, labels)

    def norm(pairs):  # type: ignore[no-untyped-def]
        return sum(float(np.sum((numpy(a) - numpy(b)) ** 2)) for a, b in pairs) ** 0.5

    current, found = training_model.trainable_variables, averages(training_model.optimizer)
    # Measured: 0.15; 0.97 with a constant momentum.
    assert norm(zip(found, current, strict=True)) < 0.4 * norm(zip(start, current, strict=True))


@pytest.mark.slow
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
