from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import MLP, LayerNorm, TransformerBlock
from keras_vit.layers.fused_elementwise import in_training
from tests.helpers import assert_close, normal, numpy, randomise

TOKENS = normal(6, 12)

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="other backends compile the whole model"
)


def product(x: object, gain: object) -> object:
    return x * gain * x


def test_inference_computes_what_it_is_given() -> None:
    for training in (False, None):
        assert in_training(product, training) is product


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="TensorFlow compiles it")
def test_other_backends_compute_what_they_are_given() -> None:
    assert in_training(product, True) is product


@on_tensorflow
@pytest.mark.parametrize("traced", [False, True])
def test_the_gradient_is_that_of_the_function(traced: bool) -> None:
    import tensorflow as tf

    def gradients(compute: object, x: tf.Tensor, gain: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch((x, gain))
            y = compute(x, gain)
        return y, *tape.gradient(y, (x, gain), 3 * y)

    x, gain = tf.constant(TOKENS), tf.constant(normal(12))
    run = tf.function(gradients) if traced else gradients
    for mine, its in zip(
        run(in_training(product, True), x, gain), gradients(product, x, gain), strict=True
    ):
        assert_close(mine, its, 1e-4)  # measured: 1.5e-5, of up to 100


@on_tensorflow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("gelu", ["tanh", "exact"])
def test_training_and_inference_compute_the_same(gelu: str, dtype: str) -> None:
    for layer in (LayerNorm(dtype=dtype), MLP(7, gelu=gelu, dtype=dtype)):
        layer.build(TOKENS.shape)
        randomise(layer)
        found = ops.cast(layer(TOKENS, training=True), "float32")
        expected = ops.cast(layer(TOKENS, training=False), "float32")
        # measured: 2e-7; 0.03, a rounding of bfloat16
        assert_close(found, expected, 2e-6 if dtype == "float32" else 0.1)


@pytest.mark.slow
@on_tensorflow
def test_images_of_several_sizes_train_one_model() -> None:
    block = TransformerBlock(3, 7)
    tokens = keras.Input((None, 12))
    model = keras.Model(tokens, block(tokens))
    model.compile("sgd", "mse", jit_compile=False)
    for t in (5, 9, 4):
        batch = normal(2, t, 12)
        assert np.isfinite(model.train_on_batch(batch, np.zeros_like(batch)))
    assert np.isfinite(numpy(block.mlp.expand.kernel)).all()
