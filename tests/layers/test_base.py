from __future__ import annotations

import json

import keras

from keras_vit.layers.base import BaseLayer


class Doubling(BaseLayer):
    def __init__(self, width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.inner = self._sublayer(keras.layers.Dense, width, name="inner")


def test_base_layer_keeps_its_arguments_in_the_configuration() -> None:
    layer = Doubling(7, name="doubling", dtype="float64")
    config = layer.get_config()
    assert (config["width"], config["name"]) == (7, "doubling")
    assert Doubling.from_config(config).width == 7


def test_base_layer_makes_parts_in_its_precision_and_frozen_like_itself() -> None:
    inner = Doubling(7, dtype="float64", trainable=False).inner
    assert (inner.units, inner.compute_dtype, inner.trainable) == (7, "float64", False)


def test_base_layer_returns_the_shape_that_it_gets() -> None:
    assert Doubling(7).compute_output_shape((2, None, 5)) == (2, None, 5)


def test_base_layer_keeps_the_quantization_of_its_parts() -> None:
    layer = Doubling(7, dtype="mixed_bfloat16")
    layer.inner.build((None, 5))
    assert "quantized" not in layer.get_config()
    layer.inner.quantize("int8")
    copy = Doubling.from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.inner.dtype_policy.name == "int8_from_mixed_bfloat16"
    assert copy.dtype_policy.name == "mixed_bfloat16"
