from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import (
    Detector,
    FeatureExtractor,
    Segmenter,
    features,
    preprocessing_of,
    tiled,
)
from keras_vit.models.features import representation
from keras_vit.models.last_activation import with_probabilities
from tests.helpers import assert_close, normal, numpy, randomise, tiny_model

IMAGES = normal(5, 15, 14, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"pooling": "gap", "norm_after_pooling": True}, marks=pytest.mark.slow),
        {"pooling": "map"},
        pytest.param({"representation_size": 7}, marks=pytest.mark.slow),
        pytest.param({"classifier_activation": None}, marks=pytest.mark.slow),
        {"dtype": "mixed_bfloat16"},
    ],
)
def test_features_are_what_the_classifier_receives(changes: dict[str, Any]) -> None:
    model = tiny_model(**changes)
    found = features(model, IMAGES, batch_size=2)
    expected = keras.Model(model.inputs, model.get_layer("head").input).predict(IMAGES, verbose=0)
    # bfloat16 keeps 8 bits of values around 5; else measured 1e-6.
    assert_close(found, expected, 0.3 if "dtype" in changes else 5e-6)
    assert found.dtype == np.float32


@pytest.mark.slow
def test_features_of_a_distilled_model_are_the_mean_of_both_tokens() -> None:
    model = tiny_model(distillation_token=True, distillation_head=True)
    parts = [model.get_layer(n).input for n in ("head", "distillation_head")]
    expected = np.mean(keras.Model(model.inputs, parts).predict(IMAGES, verbose=0), axis=0)
    assert_close(features(model, IMAGES), expected, 5e-6)


def test_features_without_a_classifier_are_the_outputs() -> None:
    model = tiny_model(classes=0)
    assert_close(features(model, IMAGES), model(IMAGES), 5e-6)


@pytest.mark.slow
def test_features_of_a_model_that_returns_tokens() -> None:
    model = tiny_model(classes=0, pooling="none")
    tokens = numpy(model(IMAGES))
    assert_close(features(model, IMAGES), tokens[:, 1:].mean(axis=1), 5e-6)
    assert_close(features(model, IMAGES, pool="all"), tokens, 5e-6)


@pytest.mark.slow
def test_features_of_several_layers_in_one_pass() -> None:
    model = tiny_model(register_tokens=2)
    seen, norm = FeatureExtractor(model).activations(IMAGES), model.get_layer("encoder_norm")
    first, last = (numpy(norm(seen.tokens[index])) for index in (1, 2))
    for pool, expected in (
        ("token", (first[:, 0], last[:, 0])),
        (None, (first[:, 0], last[:, 0])),
        ("gap", (first[:, 3:].mean(axis=1), last[:, 3:].mean(axis=1))),
        ("avg", (first[:, 3:].mean(axis=1), last[:, 3:].mean(axis=1))),
        ("all", (first, last)),
    ):
        found = features(model, IMAGES, layers=[0, -1], pool=pool)
        assert list(found) == [0, -1]
        assert_close(found[0], expected[0], 1e-5)
        assert_close(found[-1], expected[1], 1e-5)


def test_features_of_what_averages_its_patches_are_their_mean() -> None:
    model = tiny_model(pooling="gap")
    found = features(model, IMAGES, layers=[-1])
    assert_close(found[-1], features(model, IMAGES), 5e-6)


@pytest.mark.slow
def test_features_of_a_users_model_and_of_other_networks() -> None:
    images = keras.Input((15, 14, 3))
    hidden = keras.layers.Dense(7, activation="relu")(tiny_model(classes=0)(images))
    user = randomise(keras.Model(images, keras.layers.Dense(5, activation="softmax")(hidden)))
    expected = keras.Model(images, hidden).predict(IMAGES, verbose=0)
    assert_close(features(user, IMAGES), expected, 5e-6)
    probabilities = keras.ops.softmax(keras.layers.Dense(5)(hidden))
    assert_close(features(keras.Model(images, probabilities), IMAGES), expected, 5e-6)
    other = keras.Sequential([keras.Input((15, 14, 3)), keras.layers.Flatten()])
    assert features(other, IMAGES).shape == (5, 630)
    with pytest.raises(ValueError, match="`model` must be a Vision Transformer"):
        features(other, IMAGES, layers=[0])


@pytest.mark.tensorflow
def test_features_of_labeled_images() -> None:
    from keras_vit.data import evaluation_dataset, load

    digits = load("digits").subset(range(7))
    model = keras_vit.ViTMicro4(weights=None, input_shape=(16, 16, 3), classes=10)
    batches = evaluation_dataset(digits, preprocessing_of(model), batch_size=7)
    images = next(iter(batches))[0].numpy()
    assert_close(keras_vit.features(model, digits, batch_size=3), features(model, images), 5e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [2]}, r"`layers` must be a list of indices of the 2 blocks, in \[-2, 2\)"),
        ({"layers": [-3]}, r"such as \[0, -1\]. Received: layers=\[-3\]"),
        ({"layers": ["block_01"]}, r"indices of the 2 blocks.*\['block_01'\]"),
        ({"layers": "block_01"}, r"indices of the 2 blocks.* Received: layers='block_01'"),
        ({"layers": 1}, r"`layers` must be a list of indices .* Received: layers=1"),
        ({"pool": "mean"}, "`pool` must be one of 'token', 'gap', 'avg', 'all'"),
    ],
)
def test_features_that_are_not_there(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features(tiny_model(), IMAGES, **arguments)


def test_features_of_a_class_token_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="`pool` must be 'gap' or 'all' if the model has no"):
        features(tiny_model(class_token=False, pooling="gap"), IMAGES, pool="token")


def test_features_of_a_model_of_numbers_have_no_unit() -> None:
    encoder = tiny_model(classes=0)
    standardized = keras.layers.Dense(2)(encoder.output)
    for units in (keras.layers.Rescaling(100.0, 2000.0), lambda x: 100.0 * x + 2000.0):
        found = features(keras.Model(encoder.input, units(standardized)), IMAGES)
        np.testing.assert_allclose(found, numpy(encoder(IMAGES)), atol=1e-5)  # measured: 2e-6


def test_features_of_a_model_that_ends_in_a_softmax_layer() -> None:
    encoder = tiny_model(classes=0)
    model = keras.Sequential([encoder, keras.layers.Dense(5), keras.layers.Softmax()])
    np.testing.assert_allclose(features(model, IMAGES), numpy(encoder(IMAGES)), atol=1e-5)


def test_subclassed_models_are_refused() -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network = tiny_model()

        def call(self, x: Any) -> Any:
            return self.network(x)

    for function in (
        lambda model: features(model, IMAGES),
        with_probabilities,
        lambda model: tiled(model, (30, 28)),
        lambda backbone: Detector(backbone, 2),
        lambda backbone: Segmenter(backbone, 2),
    ):
        (name,) = inspect.signature(function).parameters
        with pytest.raises(ValueError, match=rf"`{name}` must be a built functional .*type Own"):
            function(Own())


def test_representation_leaves_the_model_alone() -> None:
    model = tiny_model()
    before = numpy(model(IMAGES))
    representation(model).set_weights([0 * w for w in representation(model).get_weights()])
    np.testing.assert_array_equal(numpy(model(IMAGES)), before)
