from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.layers import Dropout, StochasticDepth, TransformerBlock
from keras_vit.layers.dropout import ReplicaSeedGenerator, same_seeds
from tests.helpers import check_layer, normal, numpy


def test_dropout_contract() -> None:
    check_layer(Dropout(0.3, seed=7), normal(3, 5, 7), output_shape=(3, 5, 7), parameters=0)


def test_dropout_drops_single_values_and_scales_the_rest() -> None:
    values = normal(200, 30)
    outputs = numpy(Dropout(0.2)(values, training=True))
    dropped = outputs == 0
    np.testing.assert_allclose(outputs[~dropped], values[~dropped] / 0.8, rtol=1e-6)
    assert abs(dropped.mean() - 0.2) < 0.026  # its standard deviation is 0.005


@pytest.mark.parametrize(("rate", "training"), [(0.9, False), (0.9, None), (0.0, True)])
def test_dropout_changes_nothing(rate: float, training: bool | None) -> None:
    values = normal(3, 5)
    np.testing.assert_array_equal(numpy(Dropout(rate)(values, training=training)), values)


def test_dropout_is_keras_s_on_one_device() -> None:
    ones = np.ones((64,), "float32")
    ours, theirs = Dropout(0.5, seed=3), keras.layers.Dropout(0.5, seed=3)
    for _ in range(2):
        np.testing.assert_array_equal(
            numpy(ours(ones, training=True)), numpy(theirs(ones, training=True))
        )


def test_dropout_checks_its_rate() -> None:
    with pytest.raises(ValueError, match=r"`rate` must be a number in \[0, 1\)\. Received: rate=1"):
        Dropout(1)


def test_repeated_computation_draws_once() -> None:
    generator = ReplicaSeedGenerator(seed=3)
    draw = same_seeds(lambda _: [numpy(generator.next()).tolist() for _ in range(2)])
    assert draw(0) == draw(0) == [[3, 0], [3, 1]]
    assert numpy(generator.next()).tolist() == [3, 2]
    assert same_seeds(lambda _: numpy(generator.next()).tolist())(0) == [3, 3]


def gradient(block: TransformerBlock, inputs: np.ndarray) -> list[np.ndarray]:
    """The gradient of the sum of squares by the inputs and all weights, in a compiled step."""
    if keras.backend.backend() == "jax":
        return jax_gradient(block, inputs)
    import tensorflow as tf

    @tf.function
    def step(z: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(z)
            loss = tf.reduce_sum(tf.square(block(z, training=True)))
        return tape.gradient(loss, [z, *(w.value for w in block.trainable_weights)])

    return [numpy(g) for g in step(tf.constant(inputs))]


def jax_gradient(block: TransformerBlock, inputs: np.ndarray) -> list[np.ndarray]:
    import jax

    def loss(z, trainable, non_trainable):
        outputs, _ = block.stateless_call(trainable, non_trainable, z, training=True)
        return jax.numpy.sum(outputs**2)

    trainable = [w.value for w in block.trainable_variables]
    non_trainable = [w.value for w in block.non_trainable_variables]
    by_inputs, by_weights = jax.jit(jax.grad(loss, argnums=(0, 1)))(
        inputs, trainable, non_trainable
    )
    return [numpy(g) for g in (by_inputs, *by_weights)]


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="its gradient is of a TensorFlow or JAX step"
)
def test_rematerialised_block_has_the_same_gradient_with_dropout() -> None:
    inputs = normal(3, 5, 6)
    found = []
    for remat in (False, True):
        keras.utils.set_random_seed(9)
        block = TransformerBlock(2, 11, dropout_rate=0.3, stochastic_depth_rate=0.4)
        block.build(inputs.shape)
        block.remat = remat
        found.append(gradient(block, inputs))
    for plain, again in zip(*found, strict=True):
        np.testing.assert_allclose(plain, again, rtol=1e-5, atol=1e-6)


BRANCH = normal(3, 5, 7)


def test_stochastic_depth_contract() -> None:
    check_layer(StochasticDepth(0.3, seed=7), BRANCH, output_shape=(3, 5, 7), parameters=0)


def test_stochastic_depth_drops_whole_examples_and_scales_the_rest() -> None:
    branch = normal(2000, 2, 3)
    outputs = numpy(StochasticDepth(0.2)(branch, training=True))
    dropped = (outputs == 0).all(axis=(1, 2))
    np.testing.assert_allclose(outputs[~dropped], branch[~dropped] / 0.8, rtol=1e-6)
    assert abs(dropped.mean() - 0.2) < 0.045  # its standard deviation is 0.009


def test_stochastic_depth_keeps_the_mean() -> None:
    outputs = numpy(StochasticDepth(0.4)(np.ones((20_000, 1), "float32"), training=True))
    assert abs(outputs.mean() - 1) < 0.03  # its standard deviation is 0.006


@pytest.mark.parametrize(("rate", "training"), [(0.9, False), (0.9, None), (0.0, True)])
def test_stochastic_depth_changes_nothing(rate: float, training: bool | None) -> None:
    np.testing.assert_array_equal(numpy(StochasticDepth(rate)(BRANCH, training=training)), BRANCH)


def test_stochastic_depth_draws_anew_for_every_call() -> None:
    layer, branch = StochasticDepth(0.5, seed=3), np.ones((64, 1), "float32")
    first, second = (numpy(layer(branch, training=True)) for _ in range(2))
    assert np.any(first != second)
    again = numpy(StochasticDepth(0.5, seed=3)(branch, training=True))
    np.testing.assert_array_equal(again, first)


def test_stochastic_depth_checks_its_rate() -> None:
    with pytest.raises(ValueError, match=r"`rate` must be a number in \[0, 1\)\. Received: rate=1"):
        StochasticDepth(1)
