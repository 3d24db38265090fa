"""What TensorFlow makes of a model's graph: the speed of inference on CPUs hangs on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest

from keras_vit import accelerators, models
from keras_vit.models import inference_graphs, inference_runtime
from tests.helpers import normal, tiny_config, tiny_model

IMAGES = normal(3, 15, 14, 3)
LAYERS = 2

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's own"
    ),
    pytest.mark.skipif(
        keras.backend.backend() == "tensorflow" and accelerators.onednn() != "on",
        reason="oneDNN fuses them, and is off",
    ),
]


@pytest.fixture(autouse=True)
def _optimized() -> Iterator[None]:
    import tensorflow as tf

    name = "disable_meta_optimizer"  # see tests/conftest.py
    before = tf.config.optimizer.get_experimental_options().get(name, False)
    tf.config.optimizer.set_experimental_options({name: False})
    yield
    tf.config.optimizer.set_experimental_options({name: before})


def operations(compute: Callable[[Any], Any]) -> Counter:
    """Counts what is left of a forward pass when TensorFlow has optimized it."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    forward = tf.function(lambda images: compute(images))
    context.context().enable_run_metadata()
    try:
        forward(tf.constant(IMAGES))
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_run_metadata()
    graphs = metadata.function_graphs[-1]  # before it those of operations outside
    return Counter(
        " ".join([node.op, *(op.decode() for op in node.attr["fused_ops"].list.s)])
        for node in graphs.post_optimization_graph.node
    )


@pytest.mark.parametrize("gelu", ["tanh", "exact"])
def test_products_bias_gelu_and_sums_are_one_operation(gelu: str) -> None:
    found = operations(tiny_model(gelu=gelu))
    fused = {"tanh": "GeluApproximate", "exact": "GeluExact"}[gelu]
    assert found[f"_FusedMatMul BiasAdd {fused}"] == LAYERS
    assert found["_FusedMatMul BiasAdd Add"] == 2 * LAYERS
    assert found["_FusedMatMul BiasAdd"] == LAYERS + 1  # queries, keys and values; the classifier
    assert not found["Tanh"] + found["Erf"]
    # In each block of q, k and v, and of the heads; one cuts the patches.
    assert found["Transpose"] == 2 * LAYERS + 1


def test_products_of_a_new_model_are_fused_when_its_weights_are_constants() -> None:
    """TensorFlow removes sums with its biases, which are zeros."""
    model = models.build(tiny_config())
    inference_runtime.fold(model)
    found = operations(inference_graphs.with_constants(model, model))
    assert found["_FusedMatMul BiasAdd GeluApproximate"] == LAYERS
    assert found["_FusedMatMul BiasAdd Add"] == 2 * LAYERS
