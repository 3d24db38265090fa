from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models.inference_graphs import (
    InferenceLayer,
    InferenceModel,
    compiled_for_few,
    frozen,
    with_placeholders,
    without_xla,
)
from tests.helpers import assert_close, normal, tiny_model

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's graphs only"
)
IMAGES = normal(6, 15, 14, 3)
for_two = functools.partial(compiled_for_few, few=2)
each_form = pytest.mark.parametrize(
    "form", [without_xla, frozen, for_two], ids=["without_xla", "frozen", "compiled_for_few"]
)


def copied(model: keras.Model, form: Callable[[keras.Model], Any]) -> keras.Model:
    inputs = keras.Input(model.input_shape[1:])
    return InferenceModel(inputs=inputs, outputs=InferenceLayer(model, form)(inputs))


@pytest.mark.slow
@each_form
def test_any_number_of_images_is_answered_the_same(form: Callable[[keras.Model], Any]) -> None:
    model = tiny_model()
    copy = copied(model, form)
    for number in (1, 2, 3, 6):
        expected = model(IMAGES[:number])
        assert_close(copy(IMAGES[:number]), expected, 5e-6)  # measured: 3e-7
        assert_close(copy.predict(IMAGES[:number], verbose=0), expected, 5e-6)  # measured: 3e-7


@each_form
def test_there_is_nothing_to_train(form: Callable[[keras.Model], Any]) -> None:
    assert copied(tiny_model(), form).weights == []


@pytest.mark.slow
@each_form
def test_a_mixed_policy_outside_leaves_the_images_as_they_are(
    form: Callable[[keras.Model], Any],
) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny_model(dtype="float32")
        copy = copied(model, form)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_close(copy(IMAGES), np.asarray(model(IMAGES)), 5e-6)  # measured: 3e-7


def test_the_graph_has_constants_and_no_variables() -> None:
    graph = frozen(tiny_model()).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert "Const" in kinds
    assert not kinds & {"VarHandleOp", "ReadVariableOp"}
    assert len(graph.inputs) == 1  # a weight from outside would be another


@pytest.mark.slow
def test_variables_of_the_frozen_model_are_let_go() -> None:
    model = tiny_model()
    copy, reference = copied(model, frozen), weakref.ref(model.weights[0])
    del model
    gc.collect()
    assert reference() is None
    assert copy(IMAGES).shape == (6, 11)


@each_form
def test_model_is_traced_once_for_all_batch_sizes(form: Callable[[keras.Model], Any]) -> None:
    calls = []

    class Counted(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            calls.append(inputs.shape)
            return inputs

    inputs = keras.Input((15, 14, 3))
    copy = copied(keras.Model(inputs, Counted()(inputs)), form)
    calls.clear()
    for number in (1, 2, 3, 6):
        copy(IMAGES[:number])
    assert len(calls) <= 2  # both branches of `compiled_for_few`
    assert all(shape == (None, 15, 14, 3) for shape in calls)


@each_form
def test_predict_is_not_compiled_by_xla(form: Callable[[keras.Model], Any]) -> None:
    assert not all(layer.supports_jit for layer in copied(tiny_model(), form).layers)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "compiled"), [(without_xla, 0), (frozen, 0), (for_two, 1)])
def test_only_few_images_are_compiled(form: Callable[[keras.Model], Any], compiled: int) -> None:
    import tensorflow as tf

    copy = copied(tiny_model(), form)
    forward = tf.function(lambda images: copy(images, training=False), autograph=False)
    graph = forward.get_concrete_function(tf.TensorSpec((None, 15, 14, 3))).graph
    functions = graph.as_graph_def().library.function
    assert sum(function.attr["_XlaMustCompile"].b for function in functions) == compiled


def test_placeholders_have_a_name_for_each_weight_also_of_layers_of_one_name() -> None:
    inputs, images = keras.Input((5,)), keras.Input((5,))
    inner = keras.Model(inputs, keras.layers.Dense(5, name="a")(inputs))
    model = keras.Model(images, keras.layers.Dense(5, name="a")(inner(images)))
    assert len({variable.path for variable in model.variables}) < len(model.variables)
    run, values = with_placeholders(model, model)
    assert len(values) == len(model.variables)
    for value, variable in zip(values.values(), model.variables, strict=True):
        assert_close(value, variable, 0)
    assert_close(run(np.ones((2, 5), "float32")), np.zeros((2, 5)), 0)
