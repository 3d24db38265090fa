from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.models import build, config_of, preprocessing_of, rebuild
from keras_vit.preprocessing import Preprocessing
from tests.helpers import assert_close, normal, numpy, tiny_config, tiny_model

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
    with pytest.raises(ValueError, match=r"(?i)weight"):
        rebuild(tiny_model(), classes=7)
