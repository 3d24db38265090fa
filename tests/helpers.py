"""One check for every layer, and what the tests of layers, models and weights share."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models import ViTConfig, build

# Sizes are all different, so that swapped axes cannot pass: P, Q = 3, 2; grid 5 x 7; K 4, d 6.
CONFIG = ViTConfig(
    hidden_size=24,
    num_layers=2,
    num_heads=4,
    mlp_dim=29,
    patch_size=(3, 2),
    image_size=(15, 14),
    classes=11,
)

# For a few steps, compiling takes longer than it saves on TensorFlow, and the reverse on JAX.
JIT = keras.backend.backend() == "jax"


def tiny_config(**changes: Any) -> ViTConfig:
    return CONFIG.replace(**changes)


def tiny_model(name: str = "tiny", dtype: Any = None, **changes: Any) -> keras.Model:
    """A model whose every weight matters: a new one has zeros in its head."""
    return randomise(build(tiny_config(**changes), name=name, dtype=dtype))


def randomise(model: Any, seed: int = 5, scale: float = 0.3) -> Any:
    """Adds noise to all weights of a model or layer, so that no bias or norm is trivial."""
    rng = np.random.default_rng(seed)
    model.set_weights([w + rng.normal(scale=scale, size=w.shape) for w in model.get_weights()])
    return model


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numpy(x: Any) -> np.ndarray:
    return ops.convert_to_numpy(x)


def weights_of(layer: Any) -> dict[str, np.ndarray]:
    """Weights by path; those of a layer on its own without the layer's name."""
    prefix = "" if isinstance(layer, keras.Model) else f"{layer.name}/"
    return {w.path.removeprefix(prefix): numpy(w) for w in layer.weights}


def assert_close(actual: Any, expected: Any, tolerance: float, what: str = "") -> None:
    """Asserts equal shapes and a largest absolute difference of at most `tolerance`."""
    actual, expected = numpy(actual), numpy(expected)
    assert actual.shape == expected.shape, what
    difference = np.abs(actual.astype("float64") - expected.astype("float64")).max()
    assert difference <= tolerance, f"{what}: largest difference {difference:.2g}"


def check_layer(
    layer: keras.layers.Layer,
    inputs: np.ndarray,
    *,
    output_shape: tuple[int, ...],
    parameters: int,
    half_output: bool = True,
) -> None:
    """What every public layer keeps: configuration, shapes, weights, training, precision.

    Args:
        layer: A layer that has not been called yet.
        inputs: A float32 batch for it.
        output_shape: What it must return, with the batch.
        parameters: How many weights it must have then.
        half_output: Whether it returns half precision under a mixed policy, or float32.
    """
    copy = _round_trip(layer)
    symbolic = layer(keras.Input(inputs.shape[1:]))
    assert symbolic.shape == (None, *output_shape[1:])
    assert layer.count_params() == parameters
    randomise(layer)
    outputs = layer(inputs)
    assert tuple(outputs.shape) == output_shape
    assert keras.backend.standardize_dtype(outputs.dtype) == symbolic.dtype == "float32"

    copy(inputs)
    copy.set_weights(layer.get_weights())
    assert [w.path for w in copy.weights] == [w.path for w in layer.weights]
    np.testing.assert_array_equal(numpy(copy(inputs)), numpy(outputs))
    frozen = type(layer).from_config({**layer.get_config(), "trainable": False})
    frozen(inputs)
    assert not any(weight.trainable for weight in frozen.weights)
    for policy in ("mixed_float16", "mixed_bfloat16"):
        _check_policy(layer, inputs, policy, half_output)
    if parameters:
        _check_training(copy, inputs)


def _round_trip(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Rebuilds from the configuration, directly and as a saved file does: through JSON."""
    config = layer.get_config()
    arguments = inspect.signature(type(layer)).parameters.values()
    assert config.keys() >= {a.name for a in arguments if a.kind is not a.VAR_KEYWORD}
    assert type(layer).from_config(config).get_config() == config
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(saved)
    assert type(copy) is type(layer)
    assert copy.get_config() == config
    return copy


def _check_policy(
    layer: keras.layers.Layer, inputs: np.ndarray, policy: str, half_output: bool
) -> None:
    half = type(layer).from_config({**layer.get_config(), "dtype": policy})
    assert half.compute_dtype == policy[6:]
    returned = half.compute_dtype if half_output else "float32"
    assert half(keras.Input(inputs.shape[1:])).dtype == returned
    assert all(weight.dtype == "float32" for weight in half.weights)
    half.set_weights(layer.get_weights())
    outputs = half(inputs)
    assert keras.backend.standardize_dtype(outputs.dtype) == returned
    outputs = numpy(ops.cast(outputs, "float32"))
    # Half precision keeps 8 (bfloat16) to 11 bits; a few roundings of values around 10.
    assert_close(outputs, layer(inputs), 0.25, policy)


def _check_training(layer: keras.layers.Layer, inputs: np.ndarray) -> None:
    """A few steps on one batch: the loss falls and every weight moves.

    Without dropout, whose random numbers take JAX seconds to compile; whole models train with it.
    """
    config = layer.get_config()
    silent = {name: 0.0 for name in config if name.endswith("rate")}
    weights, layer = layer.get_weights(), type(layer).from_config({**config, **silent})
    images = keras.Input(inputs.shape[1:])
    model = keras.Model(images, layer(images))
    layer.set_weights(weights)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=JIT)
    before = [w.copy() for w in layer.get_weights()]
    targets = normal(*layer(inputs).shape, seed=7)
    untrained = np.square(numpy(layer(inputs)) - targets).mean()
    for _ in range(4):
        model.train_on_batch(inputs, targets)
    assert np.square(numpy(layer(inputs)) - targets).mean() < untrained
    for weight, old in zip(layer.weights, before, strict=True):
        assert np.any(numpy(weight) != old), weight.path


def in_training(objective: Any, network: keras.Model, *arguments: Any, **settings: Any) -> Any:
    """A network with an objective, in training; settings of both."""
    from keras_vit.training.training_model import TrainingModel

    names = ("accumulation_steps", "clip_norm")
    steps = {name: settings.pop(name) for name in names if name in settings}
    return TrainingModel(objective(network, *arguments, **settings), **steps)


def link_twice(folder: Path, number: int = 30) -> None:
    """Makes folders `0` to `number`, each with two links to the next: 2**number paths."""
    for index in range(number + 1):
        (folder / str(index)).mkdir()
    for index in range(number):
        for link in "ab":
            (folder / str(index) / link).symlink_to(folder / str(index + 1))
