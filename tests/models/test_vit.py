from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import TransformerBlock
from keras_vit.models import build, preprocessing_of
from keras_vit.zoo import CONSTRUCTORS
from tests import reference
from tests.helpers import (
    JIT,
    assert_close,
    normal,
    numpy,
    randomise,
    tiny_config,
    tiny_model,
    weights_of,
)

IMAGES = normal(2, 15, 14, 3)

VARIANTS = {
    "token": {},
    "gap": {"pooling": "gap", "class_token": False},
    "gap with a class token": {"pooling": "gap"},
    "max": {"pooling": "max"},
    "map": {"pooling": "map", "class_token": False},
    "unpooled": {"pooling": "none"},
    "without a classifier": {"pooling": "none", "classes": 0},
    "pooled, without a classifier": {"classes": 0},
    "representation": {"representation_size": 17},
    "learned_2d": {"position_embedding": "learned_2d"},
    "sincos_2d": {"position_embedding": "sincos_2d"},
    "no positions": {"position_embedding": "none"},
    "exact, no qkv bias": {"gelu": "exact", "epsilon": 0.01, "qkv_bias": False},
    "one channel": {"channels": 1},
    "four channels": {"channels": 4},
    "remainder": {"image_size": (16, 15), "remainder": "drop"},
    "five layers": {"num_layers": 5},
    "distilled": {"distillation_token": True, "distillation_head": True},
    "distillation token alone": {"distillation_token": True},
    "registers": {"register_tokens": 3, "prefix_position": False, "layer_scale": 0.5},
    "registers and gap": {"register_tokens": 3, "pooling": "gap", "norm_after_pooling": True},
    "norm before the blocks": {"pre_norm": True},
    "representation, without a classifier": {"representation_size": 17, "classes": 0},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_build_equals_the_equations(changes: dict[str, Any]) -> None:
    model = tiny_model(**{"classifier_activation": None, **changes})
    config = tiny_config(**changes)
    images = normal(2, *config.image_size, config.channels)
    expected = [reference.vit(x, weights_of(model), config.get_config()) for x in images]
    outputs = model(images)
    # Measured: 9e-6 with five layers (values up to 9), otherwise 3e-6.
    assert_close(outputs, np.stack(expected), 3e-5)
    assert model.output_shape[1:] == tuple(outputs.shape)[1:]


def test_build_softmax() -> None:
    model = tiny_model()
    expected = [reference.vit(x, weights_of(model), tiny_config().get_config()) for x in IMAGES]
    assert_close(model(IMAGES), reference.softmax(np.stack(expected)), 1e-5)  # measured: 6e-7


def test_build_starts_with_equal_probabilities() -> None:
    assert_close(build(tiny_config())(IMAGES), np.full((2, 11), 1 / 11), 1e-7)


def test_build_names_every_layer() -> None:
    model = build(tiny_config(representation_size=17), name="mine")
    assert model.name == "mine"
    assert [layer.name for layer in model.layers] == [
        "images",
        "image_contract",
        "patches",
        "patch_encoder",
        "block_00",
        "block_01",
        "encoder_norm",
        "pooling",
        "pre_logits",
        "head",
    ]


def test_build_grows_stochastic_depth_linearly() -> None:
    model = build(tiny_config(num_layers=5, stochastic_depth_rate=0.2))
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    rates = [block.stochastic_depth_rate for block in blocks]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_build_hands_the_rates_on() -> None:
    model = build(tiny_config(dropout_rate=0.1, attention_dropout_rate=0.2))
    assert model.get_layer("patch_encoder").dropout_rate == 0.1
    for name in ("block_00", "block_01"):
        block = model.get_layer(name)
        assert (block.dropout_rate, block.attention.dropout_rate) == (0.1, 0.2)


@pytest.mark.slow
def test_build_for_any_size_equals_the_model_of_that_size() -> None:
    """One graph with a 5 x 7 table: the same size, and others in both directions."""
    dynamic = tiny_model(image_size=(None, None), position_grid=(5, 7))
    assert dynamic.input_shape == (None, None, None, 3)
    assert dynamic.output_shape == (None, 11)
    for size in ((15, 14), (24, 4), (3, 22)):
        static = build(tiny_config(image_size=size, position_grid=(5, 7)))
        static.set_weights(dynamic.get_weights())
        images = normal(2, *size, 3)
        assert_close(dynamic(images), static(images), 1e-6, str(size))
        assert_close(dynamic.predict(images, verbose=0), static(images), 1e-6, str(size))


@pytest.mark.parametrize("kind", ["learned_2d", "sincos_2d", "none"])
def test_build_for_any_size_with_other_positions(kind: str) -> None:
    fields = {"position_embedding": kind, "position_grid": (5, 7)}
    dynamic = tiny_model(image_size=(None, None), **fields)
    static = build(tiny_config(image_size=(24, 4), **fields))
    static.set_weights(dynamic.get_weights())
    images = normal(2, 24, 4, 3)
    assert_close(dynamic(images), static(images), 1e-6)


def test_build_for_any_size_names_the_nearest_sizes_when_called() -> None:
    dynamic = build(tiny_config(image_size=(None, None), position_grid=(5, 7)))
    message = r"multiple of the patch size \(3, 2\) .* nearest sizes are \(15, 12\) and \(18, 14\)"
    for call in (dynamic, dynamic.predict):
        with pytest.raises(ValueError, match=message):
            call(normal(2, 16, 13, 3))


@pytest.mark.parametrize("method", ["__call__", "predict"])
@pytest.mark.parametrize(("channels", "size"), [(1, (15, 14)), (3, (15, 14)), (3, (None, None))])
def test_images_of_other_channels_are_named(
    channels: int, size: tuple[int | None, int | None], method: str
) -> None:
    model = build(tiny_config(image_size=size, position_grid=(5, 7), channels=channels))
    message = rf"channels of `images` must be {channels}, .*=\(height, width, {4 - channels}\)"
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(normal(2, 15, 14, 4 - channels))


def test_build_upon_an_input_tensor() -> None:
    images = keras.Input((30, 28, 3))
    model = build(tiny_config(), input_tensor=keras.layers.AveragePooling2D(2)(images))
    randomise(model)
    plain = build(tiny_config())
    plain.set_weights(model.get_weights())
    large = normal(2, 30, 28, 3)
    small = large.reshape(2, 15, 2, 14, 2, 3).mean((2, 4))
    assert_close(model(large), plain(small), 1e-5)


def test_build_refuses_another_input_tensor() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(batch, 15, 14, 3\). Received: .*\(None, 15, 14,"
    ):
        build(tiny_config(), input_tensor=keras.Input((15, 14, 4)))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_build_in_mixed_precision_classifies_in_float32(policy: str) -> None:
    half, plain = tiny_model(dtype=policy), tiny_model()
    half.set_weights(plain.get_weights())
    assert half.get_layer("block_01").compute_dtype == policy.removeprefix("mixed_")
    assert half.output.dtype == "float32"
    # Measured on probabilities: 0.03 in bfloat16, 0.004 in float16.
    assert_close(half(IMAGES), plain(IMAGES), 0.1)


def test_build_follows_the_global_policy() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert build(tiny_config()).get_layer("block_00").compute_dtype == "bfloat16"


@pytest.mark.slow
def test_build_trains_every_weight_with_all_kinds_of_dropout() -> None:
    model = build(
        tiny_config(dropout_rate=0.1, attention_dropout_rate=0.1, stochastic_depth_rate=0.2)
    )
    randomise(model, scale=0.02)
    before = model.get_weights()
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=JIT)
    images, labels = normal(8, 15, 14, 3), np.arange(8)
    losses = model.fit(images, labels, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert losses[0] > math.log(11) / 2
    assert losses[-1] < 0.7 * losses[0]
    for weight, old in zip(model.weights, before, strict=True):
        assert np.any(numpy(weight) != old), f"{weight.path} did not move"


def test_build_chooses_a_preprocessing() -> None:
    assert preprocessing_of(build(tiny_config())).size == (15, 14)
    assert preprocessing_of(build(tiny_config(channels=1))).channels == "grayscale"
    any_size = tiny_config(image_size=(None, None), position_grid=(5, 7))
    assert preprocessing_of(build(any_size)).size == (15, 14)


@pytest.mark.parametrize("name", list(CONSTRUCTORS)[::8])
def test_freezing_all_layers_but_the_last_leaves_the_classifier(name: str) -> None:
    config = CONSTRUCTORS[name].config.replace(
        num_layers=1, hidden_size=12, num_heads=3, mlp_dim=17
    )
    model = build(config.replace(classes=5))
    for layer in model.layers[:-1]:
        layer.trainable = False
    head = model.layers[-1]
    assert [v.path for v in model.trainable_variables] == [head.kernel.path, head.bias.path]
    assert head.kernel.shape == (12, 5)
