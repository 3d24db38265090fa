from __future__ import annotations

import keras
import pytest
from keras import ops

from keras_vit.layers import Dense
from tests.helpers import assert_close, normal, randomise

TOKENS = normal(2, 5, 7)


def test_dense_is_rebuilt_from_its_configuration() -> None:
    saved = keras.saving.serialize_keras_object(Dense(11, activation="gelu"))
    copy = keras.saving.deserialize_keras_object(saved)
    assert type(copy) is Dense
    assert copy.activation is keras.activations.gelu


@pytest.mark.parametrize("arguments", [{}, {"activation": "gelu"}, {"use_bias": False}])
def test_dense_equals_keras_s_in_training_and_inference(arguments: dict) -> None:
    layer, expected = Dense(11, **arguments), keras.layers.Dense(11, **arguments)
    layer.build(TOKENS.shape)
    expected.build(TOKENS.shape)
    randomise(layer)
    expected.set_weights(layer.get_weights())
    for training in (True, False):
        assert_close(layer(TOKENS, training=training), expected(TOKENS), 3e-6)  # measured: 4e-7


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a gradient by TensorFlow")
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 3e-5), ("mixed_bfloat16", 0.06)],  # measured: 4e-6, 0.016
)
def test_gradients_equal_keras_s(dtype: str, tolerance: float) -> None:
    import tensorflow as tf

    def gradients(kind: type, dtype: str) -> list:
        keras.utils.set_random_seed(3)
        layer = kind(11, activation="gelu", dtype=dtype)
        layer.build(TOKENS.shape)
        x = tf.constant(TOKENS)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = ops.sum(ops.cast(layer(x, training=True), "float32") ** 2)
        return tape.gradient(loss, [x, layer.kernel.value, layer.bias.value])

    for found, expected in zip(
        gradients(Dense, dtype), gradients(keras.layers.Dense, "float32"), strict=True
    ):
        scale = float(ops.max(ops.abs(expected)))
        assert_close(found / scale, expected / scale, tolerance)
