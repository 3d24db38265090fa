from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest

from keras_vit.models import FeatureExtractor, last_activation
from keras_vit.models.cloning import layers_of
from tests.export.conftest import PREPROCESSING, randomise, tiny
from tests.helpers import tiny_model

pytestmark = pytest.mark.tensorflow

IMAGES = np.random.default_rng(1).normal(size=(3, *PREPROCESSING.size, 3)).astype("float32")


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return tiny()


def backbone(**kwargs) -> keras.Model:
    return tiny(dataclasses.replace(PREPROCESSING, class_names=None), classes=0, **kwargs)


def test_prepare_leaves_a_complete_model_alone(model: keras.Model) -> None:
    network, preprocessing = last_activation.with_probabilities(model)
    assert network is model
    assert preprocessing == PREPROCESSING


def test_prepare_adds_the_softmax_to_logits() -> None:
    logits = tiny(classifier_activation=None)
    network, _ = last_activation.with_probabilities(logits)
    np.testing.assert_allclose(network(IMAGES), softmax(np.array(logits(IMAGES))), atol=1e-6)


def test_prepare_numbers_the_classes_of_a_model_without_labels() -> None:
    unnamed = tiny(dataclasses.replace(PREPROCESSING, class_names=None))
    assert last_activation.with_probabilities(unnamed)[1].class_names == (
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["bfloat16", "float16", "float64"])
def test_prepare_makes_a_model_of_one_other_precision_float32(policy: str) -> None:
    trained = tiny(dtype=policy)
    network, _ = last_activation.with_probabilities(trained)
    assert {weight.dtype for weight in network.weights} == {network.output.dtype} == {"float32"}
    same = tiny()
    same.set_weights([np.array(weight, "float32") for weight in trained.weights])
    np.testing.assert_array_equal(network(IMAGES), same(IMAGES))


def test_prepare_computes_in_float32_while_another_policy_holds() -> None:
    keras.config.set_dtype_policy("bfloat16")
    try:
        images = keras.Input((*PREPROCESSING.size, 3), dtype="uint8")
        base = tiny(dtype="bfloat16", classifier_activation=None)
        network, _ = last_activation.with_probabilities(
            keras.Model(images, base(keras.layers.Rescaling(1 / 255)(images)))
        )
    finally:
        keras.config.set_dtype_policy("float32")
    assert network.inputs[0].dtype == "uint8"
    assert {weight.dtype for weight in network.weights} == {network.output.dtype} == {"float32"}


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_prepare_computes_in_float32(policy: str, model: keras.Model) -> None:
    trained = tiny(dtype=policy)
    network, _ = last_activation.with_probabilities(trained)
    # The same weights in float32 are `model`, to the bit.
    np.testing.assert_array_equal(network(IMAGES), model(IMAGES))
    # Float16 differs by about 1e-4, since positions are added in float32; float32 by 1e-7.
    assert np.abs(np.array(trained(IMAGES)) - np.array(model(IMAGES))).max() > 1e-5


def test_prepare_makes_a_users_mixed_model_float32_at_every_depth() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((*PREPROCESSING.size, 3))
    z = backbone(dtype="mixed_bfloat16", image_size=(None, None))(inputs)
    user = randomise(keras.Model(inputs, keras.layers.Dense(5)(z)))
    keras.config.set_dtype_policy("float32")
    network, preprocessing = last_activation.with_probabilities(user)
    assert {layer.dtype_policy.name for layer in layers_of(network)} == {"float32"}
    assert preprocessing.class_names == ("0", "1", "2", "3", "4")
    probabilities = np.array(network(IMAGES))
    np.testing.assert_allclose(probabilities, softmax(np.array(user(IMAGES), "float32")), atol=0.05)


def test_prepare_takes_a_sequential_model() -> None:
    user = keras.Sequential([backbone(), keras.layers.Dense(5)])
    user(IMAGES)
    network, _ = last_activation.with_probabilities(randomise(user))
    np.testing.assert_allclose(network(IMAGES), softmax(np.array(user(IMAGES))), atol=1e-6)


ENDINGS = pytest.mark.parametrize(
    "ending",
    [
        keras.layers.Dense(5, activation="softmax"),
        keras.Sequential([keras.layers.Dense(5), keras.layers.Softmax()]),
        lambda z: keras.ops.softmax(keras.layers.Dense(5)(z)),
        lambda z: keras.layers.Activation("softmax")(keras.layers.Dense(5)(z)),
    ],
)


@ENDINGS
def test_prepare_knows_probabilities_however_they_are_made(ending) -> None:
    base = backbone()
    user = keras.Model(base.inputs[0], ending(base.outputs[0]))
    assert last_activation.with_probabilities(user)[0] is user


@ENDINGS
def test_logits_are_those_before_a_softmax(ending) -> None:
    base = backbone()
    user = randomise(keras.Model(base.inputs[0], ending(base.outputs[0])))
    logits = last_activation.without_last_activation(user)
    assert np.ptp(logits(IMAGES)) > 1
    np.testing.assert_allclose(softmax(np.array(logits(IMAGES))), user(IMAGES), atol=1e-6)
    again = last_activation.without_last_activation(logits)
    np.testing.assert_array_equal(again(IMAGES), logits(IMAGES))


def test_prepare_rejects_a_model_without_a_classifier() -> None:
    with pytest.raises(ValueError, match=r"`model` must end in a classifier: .*'pooling'"):
        last_activation.with_probabilities(backbone())


@pytest.mark.parametrize(
    "ending",
    [
        keras.layers.Dense(1, activation="sigmoid"),
        keras.Sequential([keras.layers.Dense(1), keras.layers.Activation("sigmoid")]),
        lambda z: keras.ops.sigmoid(keras.layers.Dense(1)(z)),
    ],
)
def test_one_sigmoid_output_becomes_two_classes(ending) -> None:
    base = backbone()
    user = randomise(keras.Model(base.inputs[0], ending(base.outputs[0])))
    network, preprocessing = last_activation.with_probabilities(user)
    positive = np.array(user(IMAGES))
    expected = np.concatenate([1 - positive, positive], axis=1)
    np.testing.assert_allclose(network(IMAGES), expected, atol=1e-6)  # measured: 6e-8
    assert (preprocessing.class_names, preprocessing.thresholds) == (("0", "1"), None)
    assert last_activation.with_probabilities(network)[0] is network
    np.testing.assert_array_equal(user(IMAGES), positive)


def test_both_classes_of_one_sigmoid_output_have_gradients() -> None:
    binary = tiny(
        dataclasses.replace(PREPROCESSING, class_names=None),
        classes=1,
        classifier_activation="sigmoid",
    )
    extractor = FeatureExtractor(last_activation.with_probabilities(binary)[0])
    first, second = (
        extractor.activations_and_gradients(IMAGES, [k] * 3).token_gradients for k in (0, 1)
    )
    assert np.abs(second).max() > 0
    np.testing.assert_array_equal(first, -second)


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("rose",), ("not rose", "rose")), (("daisy", "rose"), ("daisy", "rose"))],
)
def test_one_sigmoid_output_is_the_last_class(
    names: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    named = dataclasses.replace(PREPROCESSING, class_names=names)
    binary = tiny(named, classes=1, classifier_activation="sigmoid")
    assert last_activation.with_probabilities(binary)[1].class_names == expected


def test_one_sigmoid_output_with_a_threshold_stays_a_label() -> None:
    label = dataclasses.replace(PREPROCESSING, class_names=("rose",), thresholds=(0.3,))
    one = tiny(label, classes=1, classifier_activation="sigmoid")
    network, preprocessing = last_activation.with_probabilities(one)
    assert (network, preprocessing) == (one, label)


def test_one_linear_output_is_refused() -> None:
    base = backbone()
    user = keras.Model(base.inputs[0], keras.layers.Dense(1)(base.outputs[0]))
    with pytest.raises(ValueError, match=r"`model` must end in at least two .* as in regression"):
        last_activation.with_probabilities(user)


@pytest.mark.parametrize(
    "ending",
    [
        keras.layers.Dense(5, activation="sigmoid"),
        lambda z: keras.ops.sigmoid(keras.layers.Dense(5)(z)),
        lambda z: keras.layers.Activation("sigmoid")(keras.layers.Dense(5)(z)),
    ],
)
def test_prepare_keeps_a_yes_or_no_for_each_label(ending) -> None:
    base = backbone()
    user = keras.Model(base.inputs[0], ending(base.outputs[0]))
    network, preprocessing = last_activation.with_probabilities(user)
    assert network is user
    assert preprocessing.thresholds == (0.5,) * 5


def test_prepare_adds_the_sigmoid_where_there_are_thresholds() -> None:
    thresholds = tuple(k / 10 for k in range(1, 8))
    preprocessing = dataclasses.replace(PREPROCESSING, thresholds=thresholds)
    logits = tiny(preprocessing, classifier_activation=None)
    network, found = last_activation.with_probabilities(logits)
    assert found == preprocessing
    expected = 1 / (1 + np.exp(-np.array(logits(IMAGES))))
    np.testing.assert_allclose(network(IMAGES), expected, atol=1e-6)
    trained = tiny(preprocessing, classifier_activation=None, dtype="mixed_bfloat16")
    assert last_activation.with_probabilities(trained)[0].output.dtype == "float32"


def test_prepare_knows_no_thresholds_behind_a_softmax() -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, thresholds=(0.5,) * 7)
    assert last_activation.with_probabilities(tiny(preprocessing))[1] == PREPROCESSING


def test_prepare_rejects_thresholds_of_other_classes() -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, class_names=None, thresholds=(0.5,) * 7)
    with pytest.raises(ValueError, match="Received: 5 outputs and 7 thresholds"):
        last_activation.with_probabilities(
            tiny(preprocessing, classes=5, classifier_activation="sigmoid")
        )


def test_prepare_rejects_another_activation() -> None:
    base = backbone()
    user = keras.Model(base.inputs[0], keras.layers.Dense(5, activation="tanh")(base.outputs[0]))
    with pytest.raises(ValueError, match="`model` must end in a classifier: "):
        last_activation.with_probabilities(user)


def test_prepare_rejects_tokens() -> None:
    with pytest.raises(ValueError, match=r"one score per class.*\(None, 36, 24\)"):
        last_activation.with_probabilities(backbone(pooling="none"))


def test_prepare_rejects_labels_of_other_classes() -> None:
    with pytest.raises(ValueError, match="Received: 5 outputs and 7 labels"):
        last_activation.with_probabilities(tiny(classes=5))


def test_prepare_rejects_another_image_size() -> None:
    inputs = keras.Input((20, 28, 3))
    base = tiny(image_size=(None, None))
    with pytest.raises(ValueError, match=r"\(10, 14, 3\).*\(None, 20, 28, 3\)"):
        last_activation.with_probabilities(keras.Model(inputs, base(inputs)))


def test_prepare_rejects_a_model_of_another_kind() -> None:
    other = keras.Sequential([keras.Input((10, 14, 3)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="`model` must be a model of keras_vit, or contain one"):
        last_activation.with_probabilities(other)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ([keras.layers.Dense(3)], "linear"),
        ([keras.layers.Dense(3, activation="softmax")], "softmax"),
        ([keras.layers.Dense(3, activation="sigmoid")], "sigmoid"),
        ([keras.layers.Dense(3), keras.layers.Softmax()], "softmax"),
        ([keras.layers.Dense(3), keras.layers.Activation("sigmoid")], "sigmoid"),
        ([keras.Sequential([keras.layers.Dense(3, activation="softmax")])], "softmax"),
        ([keras.layers.Dense(3, activation="relu")], "unknown"),
        ([keras.layers.Dense(3), keras.layers.Dropout(0.5)], "unknown"),
    ],
)
def test_ending_is_read_from_the_last_operation(
    ending: list[keras.layers.Layer], expected: str
) -> None:
    assert last_activation.ending_of(keras.Sequential([keras.Input((5,)), *ending])) == expected


def test_ending_of_an_operation_and_of_our_own_models() -> None:
    inputs = keras.Input((5,))
    softmax = keras.Model(inputs, keras.ops.softmax(keras.layers.Dense(3)(inputs)))
    assert last_activation.ending_of(softmax) == "softmax"
    assert last_activation.ending_of(tiny_model(num_layers=1)) == "softmax"
    assert (
        last_activation.ending_of(tiny_model(num_layers=1, classifier_activation=None)) == "linear"
    )


def test_ending_of_a_subclass_is_unknown() -> None:
    class Hidden(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)  # what follows it cannot be seen

        def call(self, inputs: object) -> object:
            return keras.ops.softmax(self.dense(inputs))

    assert last_activation.ending_of(Hidden()) == "unknown"
