from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import (
    build,
    config_of,
    optimize_for_inference,
    preprocessing_of,
    rebuild,
    with_preprocessing,
)
from keras_vit.preprocessing import Preprocessing
from tests.helpers import assert_close, normal, numpy, randomise, tiny_config, tiny_model

PREPROCESSING = Preprocessing(size=(15, 14), crop_fraction=0.7, class_names=tuple("abcdefghijk"))
IMAGES = normal(2, 15, 14, 3)


def user_model(backbone: keras.Model) -> keras.Model:
    images = keras.Input((15, 14, 3))
    return keras.Model(images, keras.layers.Dense(5)(backbone(images)), name="mine")


def test_config_of_returns_what_the_model_was_built_from() -> None:
    config = tiny_config(position_embedding="learned_2d", gelu="exact")
    assert config_of(build(config)) == config


def test_preprocessing_of_returns_what_the_model_was_given() -> None:
    assert preprocessing_of(build(tiny_config(), preprocessing=PREPROCESSING)) == PREPROCESSING


def test_inspection_finds_a_backbone_in_a_users_model() -> None:
    config = tiny_config(classes=0)
    backbone = build(config, preprocessing=PREPROCESSING)
    inside = user_model(keras.Sequential([keras.Input((15, 14, 3)), backbone]))
    assert preprocessing_of(inside) == PREPROCESSING
    assert config_of(inside) == config


@pytest.mark.parametrize("read", [config_of, preprocessing_of, rebuild])
def test_inspection_of_a_strangers_model(read: object) -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="stranger")
    with pytest.raises(ValueError, match=r"model of keras_vit, or contain one.*model='stranger'"):
        read(stranger)  # type: ignore[operator]


def test_rebuild_changes_nothing_by_default() -> None:
    model = tiny_model(name="original")
    copy = rebuild(model)
    assert copy.name == "original"
    assert copy is not model
    assert config_of(copy) == config_of(model)
    np.testing.assert_array_equal(numpy(copy(IMAGES)), numpy(model(IMAGES)))


def test_rebuild_of_a_mixed_precision_model_is_float32() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = tiny_model(dropout_rate=0.1)
    copy = rebuild(half, dropout_rate=0.0)
    assert {layer.compute_dtype for layer in copy.layers[1:]} == {"float32"}
    plain = tiny_model(dtype="float32")
    plain.set_weights(half.get_weights())
    np.testing.assert_array_equal(numpy(copy(IMAGES)), numpy(plain(IMAGES)))


def test_rebuild_replaces_configuration_and_preprocessing() -> None:
    model = tiny_model()
    copy = rebuild(model, classifier_activation=None, preprocessing=PREPROCESSING)
    assert preprocessing_of(copy) == PREPROCESSING
    assert_close(keras.ops.softmax(copy(IMAGES)), model(IMAGES), 1e-6)


def test_rebuild_refuses_weights_that_do_not_fit() -> None:
    message = r"pass the saved model to its constructor, .* Received: \{'image_size': \(18, 14\)\}"
    with pytest.raises(ValueError, match=message):
        rebuild(tiny_model(), image_size=(18, 14))


def test_rebuild_of_a_model_inside_another_names_the_way() -> None:
    backbone = tiny_model("inside", classes=0)
    own = keras.Sequential([keras.Input((15, 14, 3)), backbone, keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"pass model.get_layer\(NAME\). Received: model='seq"):
        rebuild(own)
    assert config_of(rebuild(own.get_layer("inside"))) == config_of(backbone)


UNSCALED = dataclasses.replace(PREPROCESSING, mean=0.0, std=1 / 255)
Front = Callable[[Any], Any]


def signed(images: Any) -> Any:
    return keras.layers.Rescaling(1 / 127.5, -1)(images)


def normalized(images: Any) -> Any:
    return keras.layers.Normalization(mean=[120.0, 110.0, 101.0], variance=[3600.0] * 3)(images)


def with_front(front: Front, kind: str, size: tuple[int, int] = (15, 14)) -> keras.Model:
    """A classifier with layers before its ViT, which stores the scaling to [-1, 1]."""
    images = keras.Input((*size, 3))
    if kind == "input_tensor":
        return build(tiny_config(), preprocessing=PREPROCESSING, input_tensor=front(images))
    vit = build(tiny_config(classes=0), preprocessing=PREPROCESSING)
    other = keras.Input((15, 14, 3))
    keras.Model(other, vit(other))  # a call in another model does not count
    if kind == "sequential":
        before = keras.Model(images, front(images))
        layers = [keras.Input((*size, 3)), before, vit, keras.layers.Dense(5)]
        return keras.Sequential(layers, name="mine")
    if kind == "nested":
        return user_model(keras.Sequential([keras.Model(images, front(images)), vit]))
    return keras.Model(images, keras.layers.Dense(5)(vit(front(images))), name="mine")


@pytest.mark.parametrize("kind", ["input_tensor", "sequential", "nested", "functional"])
@pytest.mark.parametrize("front", [signed, normalized, lambda x: x / 127.5 - 1.0])
def test_pixels_are_not_scaled_before_a_model_that_scales_them(front: Front, kind: str) -> None:
    model = with_front(front, kind)
    assert preprocessing_of(model) == UNSCALED
    assert preprocessing_of(model, of_network=True) == PREPROCESSING


def test_rebuild_of_a_model_that_scales_pixels_is_the_vit_with_its_own_scaling() -> None:
    assert preprocessing_of(rebuild(with_front(signed, "input_tensor"))) == PREPROCESSING


@pytest.mark.parametrize("kind", ["input_tensor", "sequential", "nested", "functional"])
@pytest.mark.parametrize(
    "front", [keras.layers.RandomFlip(), keras.layers.Rescaling(1.0), keras.layers.ZeroPadding2D(0)]
)
def test_layers_that_do_not_scale_keep_the_scaling_of_the_vit(front: Front, kind: str) -> None:
    assert preprocessing_of(with_front(front, kind)) == PREPROCESSING


def test_resizing_before_the_vit_keeps_its_scaling() -> None:
    model = with_front(keras.layers.Resizing(15, 14), "functional", size=(23, 29))
    assert preprocessing_of(model) == PREPROCESSING


def test_a_saved_model_that_scales_pixels_reads_as_before_saving(tmp_path: Path) -> None:
    with_front(signed, "sequential").save(tmp_path / "model.keras")
    assert preprocessing_of(keras.saving.load_model(tmp_path / "model.keras")) == UNSCALED


def test_pixels_of_a_model_that_scales_in_another_way_are_stated(tmp_path: Path) -> None:
    model = randomise(with_front(lambda x: x * 2.0 - 1.0, "functional"))
    with pytest.raises(ValueError, match=r"`model` must .*with_preprocessing\(model.*model='mine'"):
        preprocessing_of(model)
    unit = dataclasses.replace(PREPROCESSING, mean=0.0, std=1.0)
    stated = with_preprocessing(model, unit)
    np.testing.assert_array_equal(numpy(stated(IMAGES)), numpy(model(IMAGES)))
    stated.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert preprocessing_of(loaded) == unit
    assert config_of(loaded) == config_of(model)
    named = dataclasses.replace(unit, size=(15, 14), class_names=tuple("vwxyz"))
    again = with_preprocessing(loaded, named)
    assert preprocessing_of(again) == named
    assert len(again.layers) == len(loaded.layers)


def test_weights_before_the_vit_leave_its_pixels_unknown() -> None:
    front = keras.layers.Conv2D(3, 1, kernel_initializer=keras.initializers.Constant(0.01))
    with pytest.raises(ValueError, match="or not change them, before its Vision Transformer"):
        preprocessing_of(with_front(front, "functional"))


def test_a_model_optimized_for_inference_takes_the_same_pixels() -> None:
    assert preprocessing_of(optimize_for_inference(with_front(signed, "functional"))) == UNSCALED
