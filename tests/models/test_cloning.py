from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.models.cloning import (
    clone,
    clone_layer,
    last_layer,
    layers_of,
    to_bfloat16,
    to_float32,
)
from keras_vit.models.detector import Detector
from keras_vit.zoo import ViTMicro4
from tests.helpers import normal, numpy, randomise, tiny_model

IMAGES = normal(2, 15, 14, 3)


def nested(dtype: str | None = None) -> keras.Model:
    images = keras.Input((15, 14, 3))
    inner = keras.Sequential([tiny_model(classes=0, dtype=dtype), keras.layers.Dense(7)])
    return randomise(keras.Model(images, keras.layers.Dense(5)(inner(images))))


def test_clone_has_weights_of_its_own() -> None:
    model = nested()
    copy = clone(model)
    np.testing.assert_array_equal(numpy(copy(IMAGES)), numpy(model(IMAGES)))
    copy.set_weights([0 * weight for weight in copy.get_weights()])
    assert np.abs(numpy(model(IMAGES))).max() > 0


def test_clone_may_change_layers_at_any_depth() -> None:
    model = nested()
    names = [layer.name for layer in layers_of(model)]
    assert "block_01" in names

    def without_blocks(layer: keras.layers.Layer) -> keras.layers.Layer | None:
        return keras.layers.Identity() if layer.name.startswith("block_") else None

    copy = clone(model, without_blocks)
    assert len(copy.weights) == len(model.weights) - 2 * 12
    assert numpy(copy(IMAGES)).shape == (2, 5)


def test_clone_layer_changes_its_configuration() -> None:
    layer = keras.layers.Dense(3, activation="relu", name="a")
    copy = clone_layer(layer, activation="linear")
    assert (copy.name, copy.units, copy.activation.__name__) == ("a", 3, "linear")


def test_clone_of_a_subclass_is_refused() -> None:
    class Own(keras.Model):
        def call(self, x: object) -> object:
            return x

    with pytest.raises(ValueError, match=r"`model` must be a built functional .*of type Own"):
        clone(Own())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_to_float32_copies_what_is_not(policy: str) -> None:
    model = nested(policy)
    copy = to_float32(model)
    assert copy is not model
    assert to_float32(copy) is copy
    assert {w.dtype for w in copy.weights} == {"float32"}
    # Of 8 to 11 bits, after two blocks and values around 3; measured 0.05.
    half = numpy(keras.ops.cast(model(IMAGES), "float32"))
    np.testing.assert_allclose(numpy(copy(IMAGES)), half, atol=0.2)


def test_clone_keeps_operations_between_layers() -> None:
    images = keras.Input((15, 14, 3))
    tokens = tiny_model(classes=0, pooling="none")(images + 0.5)
    model = randomise(keras.Model(images, keras.ops.softmax(keras.layers.Dense(5)(tokens[:, 0]))))
    np.testing.assert_array_equal(numpy(clone(model)(IMAGES)), numpy(model(IMAGES)))
    assert to_float32(model) is model


def test_clone_of_an_adapted_normalization_normalizes_as_it_did() -> None:
    normalization = keras.layers.Normalization()
    normalization.adapt(IMAGES * 3.0 + 1.0)
    images = keras.Input((15, 14, 3))
    model = randomise(keras.Model(images, keras.layers.Dense(2)(normalization(images))), scale=0.01)
    normalization.finalize_state()  # the noise was added to its weights too
    np.testing.assert_array_equal(numpy(clone(model)(IMAGES)), numpy(model(IMAGES)))


def test_clone_of_a_compiled_model_is_not_compiled() -> None:
    def own(y: object, z: object) -> object:
        return z

    model = nested()
    model.compile("adam", own)
    assert not clone(model).compiled


def test_to_float32_leaves_what_is() -> None:
    model = nested()
    assert to_float32(model) is model


def test_what_answers_stays_in_float32() -> None:
    distilled = tiny_model(
        distillation_token=True, distillation_head=True, classifier_activation="softmax"
    )
    kept = [layer.name for layer in layers_of(to_bfloat16(distilled)) if computes_float32(layer)]
    assert kept == ["head", "distillation_head", "mean_of_heads", "predictions"]
    features = to_bfloat16(tiny_model(classes=0))
    assert not [layer for layer in layers_of(features) if computes_float32(layer)]
    mixed = to_bfloat16(nested("mixed_bfloat16"))
    assert computes_float32(mixed.layers[-1])


def test_numbers_and_boxes_stay_in_float32() -> None:
    backbone = ViTMicro4(weights=None, include_top=False, input_shape=(32, 64, 3))
    half = to_bfloat16(Detector(backbone, 2))
    kept = {layer.name for layer in layers_of(half) if computes_float32(layer)}
    assert kept >= {"boxes_last", "scores_last", "boxes_8", "boxes_32", "cells", "objects"}
    assert not kept & {"boxes_1", "scores_1_relu", "level_32_norm", "block_03"}
    encoder = tiny_model(classes=0)
    years = keras.layers.Rescaling(10.0, 2024.0)(keras.layers.Dense(1)(encoder.output))
    half = to_bfloat16(keras.Model(encoder.input, years))
    assert [layer.name for layer in layers_of(half) if computes_float32(layer)] == [
        layer.name for layer in half.layers[-2:]
    ]


def test_sums_behind_the_classifier_are_visited_once() -> None:
    encoder = tiny_model(classes=0)
    outputs = keras.layers.Dense(2)(encoder.output)
    for _ in range(40):  # 2 ** 40 paths
        outputs = keras.layers.Add()([outputs, outputs])
    half = to_bfloat16(keras.Model(encoder.input, outputs))
    assert len([layer for layer in layers_of(half) if computes_float32(layer)]) == 41


def computes_float32(layer: keras.layers.Layer) -> bool:
    return layer.compute_dtype == "float32" and not isinstance(layer, keras.layers.InputLayer)


def test_last_layer_of_nested_models() -> None:
    inner = keras.Sequential([keras.layers.Dense(3), keras.layers.Softmax(name="last")])
    images = keras.Input((5,))
    assert last_layer(keras.Model(images, inner(images))).name == "last"
