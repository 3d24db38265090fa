from __future__ import annotations

import dataclasses

import keras
import pytest

from keras_vit.models import preprocessing_of
from keras_vit.zoo import ViTMicro4


def test_constructor_stores_class_names() -> None:
    names = ("daisy", "rose", "tulip")
    model = ViTMicro4(weights=None, classes=3, class_names=list(names))
    assert preprocessing_of(model) == dataclasses.replace(
        preprocessing_of(ViTMicro4(weights=None, classes=3)), class_names=names
    )
    backbone = ViTMicro4(weights=None, include_top=False, pooling="token", class_names=names)
    images = keras.Input((32, 32, 3))
    own = keras.Model(images, keras.layers.Dense(3, activation="softmax")(backbone(images)))
    assert preprocessing_of(own).class_names == names


def test_constructor_refuses_another_number_of_class_names() -> None:
    message = r"`class_names` must have one name for each of the 3 classes. Received: .*'b'\)"
    with pytest.raises(ValueError, match=message):
        ViTMicro4(weights=None, classes=3, class_names=("a", "b"))
