from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.doctor.layer_outputs import layers_of, watched
from tests.helpers import normal, numpy, tiny_model

pytestmark = pytest.mark.tensorflow


def test_layers_of_finds_those_inside_layers_and_models() -> None:
    base = tiny_model(num_layers=1)
    images = keras.Input(base.input_shape[1:])
    names = [layer.name for layer in layers_of(keras.Model(images, base(images)))]
    assert names[0] == "image_contract"
    assert names.index("block_00") < names.index("qkv") < names.index("expand")
    assert names[-2:] == ["pooling", "head"]
    assert base.name not in names


def test_layers_of_names_a_shared_layer_once() -> None:
    dense = keras.layers.Dense(5, name="shared")
    inputs = keras.Input((5,))
    assert [layer.name for layer in layers_of(keras.Model(inputs, dense(dense(inputs))))] == [
        "shared"
    ]


def test_watched_shows_inputs_and_outputs_at_every_depth() -> None:
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Rescaling(2.0, name="double")])
    model = keras.Sequential(
        [keras.Input((3,)), inner, keras.layers.Rescaling(1.0, 7.0, name="add")]
    )
    x, seen = normal(2, 3), {}

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        seen[layer.name] = numpy(inputs), numpy(outputs)

    with watched(layers_of(model), watch):
        model(x)
    np.testing.assert_array_equal(seen["double"][0], x)
    np.testing.assert_array_equal(seen["double"][1], 2 * x)
    np.testing.assert_array_equal(seen["add"][0], 2 * x)
    np.testing.assert_array_equal(seen["add"][1], 2 * x + 7)


def test_watched_changes_nothing_and_ends_even_after_an_error() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    x = normal(2, 3)
    before = numpy(model(x))
    calls = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        calls.append(layer.name)
        raise KeyError(layer.name)

    with pytest.raises(KeyError), watched(model.layers, watch):
        model(x)
    np.testing.assert_array_equal(numpy(model(x)), before)
    assert len(calls) == 1
    assert "call" not in model.layers[0].__dict__
