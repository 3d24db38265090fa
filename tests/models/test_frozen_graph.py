from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.models.frozen_graph import FrozenGraph, frozen
from tests.helpers import assert_close, normal, tiny_model

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's graphs only"
)
IMAGES = normal(6, 15, 14, 3)


def frozen_copy(model: keras.Model, few: int | None = None) -> keras.Model:
    inputs = keras.Input(model.input_shape[1:])
    return keras.Model(inputs, FrozenGraph(model, few)(inputs))


def test_the_graph_has_constants_and_no_variables() -> None:
    graph = frozen(tiny_model()).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert "Const" in kinds
    assert not kinds & {"VarHandleOp", "ReadVariableOp"}
    assert len(graph.inputs) == 1  # a weight from outside would be another


@pytest.mark.parametrize("number", [1, 2, 3, 6])
def test_few_images_and_many_are_answered_the_same(number: int) -> None:
    model = tiny_model()
    copy = frozen_copy(model, few=2)
    expected = model(IMAGES[:number])
    assert_close(copy(IMAGES[:number]), expected, 5e-6)  # measured: 3e-7
    assert_close(copy.predict(IMAGES[:number], verbose=0), expected, 5e-6)


def test_only_few_images_are_compiled() -> None:
    import tensorflow as tf

    copy = frozen_copy(tiny_model(), few=2)
    forward = tf.function(lambda images: copy(images, training=False), autograph=False)
    graph = forward.get_concrete_function(tf.TensorSpec((None, 15, 14, 3))).graph
    functions = graph.as_graph_def().library.function
    assert sum(function.attr["_XlaMustCompile"].b for function in functions) == 1


def test_there_is_nothing_to_train() -> None:
    copy = frozen_copy(tiny_model())
    assert copy.weights == []


def test_it_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"for the process that made it and cannot be saved: save"):
        frozen_copy(tiny_model()).save(tmp_path / "m.keras")


def test_a_mixed_policy_outside_leaves_the_images_as_they_are() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny_model(dtype="float32")
        copy = frozen_copy(model)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_close(copy(IMAGES), np.asarray(model(IMAGES)), 5e-6)
