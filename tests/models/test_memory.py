from __future__ import annotations

from typing import Any

import pytest

from keras_vit import models
from keras_vit.layers import TransformerBlock, fused_elementwise
from keras_vit.models import memory, size
from keras_vit.models.memory import Memory, count_memory
from tests.helpers import tiny_config

# Operations that return what they are given, as another shape or in parts.
VIEWS = ("Reshape", "Identity", "IdentityN", "Unpack")


def kept_of_an_image(config: models.ViTConfig, precision: str, remat: bool = False) -> int:
    """Bytes of what a way forward leaves to its way back in TensorFlow's graph, for an image."""
    import tensorflow as tf

    model = models.build(config, dtype=precision)
    for layer in model.layers:
        if isinstance(layer, TransformerBlock):
            layer.remat = remat
    variables = [v.value for v in model.trainable_variables]

    def kept(batch: int) -> int:
        forward: set[str] = set()

        def step(images: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(images, training=True))
            forward.update(op.name for op in loss.graph.get_operations())
            return tape.gradient(loss, variables)

        shape = (batch, *config.default_image_size, config.channels)
        graph = tf.function(step).get_concrete_function(tf.TensorSpec(shape)).graph
        found = {}
        for op in graph.get_operations():
            for tensor in () if op.name in forward else op.inputs:
                while tensor.op.name in forward and tensor.op.type in VIEWS:
                    one_to_one = len(tensor.op.inputs) == len(tensor.op.outputs)
                    tensor = tensor.op.inputs[tensor.value_index if one_to_one else 0]
                if tensor.op.name in forward and tensor.dtype != tf.resource:
                    found[tensor.name] = tensor.shape.num_elements() * tensor.dtype.size
        return sum(found.values())

    return kept(3) - kept(2)


CASES: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "float32", True),
    ({}, "float32", False),
    ({}, "mixed_bfloat16", True),
    ({"gelu": "exact"}, "mixed_bfloat16", False),
    ({"layer_scale": 0.1, "qkv_bias": False}, "mixed_bfloat16", False),
    ({"dropout_rate": 0.1, "pre_norm": True}, "float32", True),
    ({"attention_dropout_rate": 0.1, "stochastic_depth_rate": 0.1}, "mixed_bfloat16", True),
]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("changes", "precision", "chains"),
    [
        *CASES[::3],
        *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in CASES[::3]),
    ],
)
def test_activations_are_what_the_graph_keeps(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], precision: str, chains: bool
) -> None:
    monkeypatch.setattr(fused_elementwise, "is_enabled", lambda: chains)
    config = tiny_config(classes=0, pooling="none", **changes)
    expected = count_memory(config, 1, precision=precision, compiled=chains).activations
    patches = 15 * 14 * 3 * (4 if precision == "float32" else 2)  # counted with the images
    drawn = 8 * (changes.get("stochastic_depth_rate", 0) > 0)
    found = kept_of_an_image(config, precision) - patches
    assert 0 <= found - expected <= drawn


@pytest.mark.tensorflow
def test_remat_keeps_what_enters_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_elementwise, "is_enabled", lambda: True)
    config = tiny_config(classes=0, pooling="none")
    tokens = 36 * 24 * 4  # of 5 x 7 patches and the class token
    patches = 15 * 14 * 3 * 4
    found = kept_of_an_image(config, "float32", remat=True)
    assert found == 2 * tokens + tokens + patches  # two blocks, the last norm
    block = count_memory(config, 1, compiled=True).activations - tokens
    one = count_memory(config, 1, compiled=True, remat=True)
    assert one.activations == 3 * tokens + block // 2


def test_memory_of_a_case_worked_by_hand() -> None:
    """D 24, M 29, K 4, L 2; T 36; 9,427 weights of which 11 * 25 are the classifier's."""
    config = tiny_config()
    weights = models.count_parameters(config)
    block = 36 * 4 * (2 * 24 + 8 * 24 + 4 * 36 + 2 * 29)
    found = count_memory(config, 5, compiled=True, average=True, gradient_sets=2)
    assert found == Memory(
        weights=4 * weights,
        gradients=8 * weights,
        optimizer=8 * weights,
        averages=4 * weights,
        images=5 * 15 * 14 * 3 * 8,
        activations=5 * (2 * block + 36 * 4 * 24),
        update=4 * weights,
        passing=5 * 36 * 4 * (24 + 2 * 4 * 36 + 6 * 24),
    )
    assert found.total == sum(vars(found).values())
    head = count_memory(config, 5, learning="head", state=1, precision="mixed_float16")
    assert (head.weights, head.half_weights) == (4 * weights, 2 * weights)
    assert (head.gradients, head.optimizer, head.activations) == (4 * 275, 4 * 275, 0)
    nothing = count_memory(config, 5, learning="nothing", average=True)
    assert (nothing.gradients, nothing.optimizer, nothing.averages, nothing.update) == (0,) * 4
    assert nothing.passing == 5 * 36 * 4 * (24 + 4 * 24 + 2 * 4 * 36)


def test_a_resnet_keeps_its_feature_maps() -> None:
    config = models.size("R+Ti/16")
    plain = count_memory(config.replace(num_layers=1), 1).activations
    maps = 112 * 112 * 64 * 8
    t = 7 * 7 + 1
    block = t * 4 * (4 * 192 + 2 + 8 * 192 + 3 * t + 5 * 768)
    assert plain == maps + block + t * 4 * (2 * 192 + 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive integer. Received: batch_size=0"),
        (
            {"precision": "bfloat16"},
            "`precision` must be one of .* Options: 'float32', 'mixed_bfloat16'",
        ),
        ({"learning": "tail"}, "`learning` must be one of 'all', 'head', 'nothing'"),
        ({"state": -1}, "`state` must be a non-negative integer. Received: state=-1"),
        ({"gradient_sets": 0}, "`gradient_sets` must be a positive integer"),
    ],
)
def test_count_memory_refuses_what_is_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        count_memory(tiny_config(), **{"batch_size": 1, **arguments})


def test_image_that_no_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = size("Micro/4")
    memory.require_memory(config)
    huge = config.replace(image_size=(16, 1_000_000))
    with pytest.raises(ValueError, match=r"`image_size` must .* for which one image needs \d+ GiB"):
        memory.require_memory(huge)
    monkeypatch.setattr(memory.accelerators, "detect", lambda: "gpu")  # has its own memory
    memory.require_memory(huge)
