from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import LayerScale
from tests.helpers import assert_close, check_layer, normal, numpy

TOKENS = normal(2, 5, 7)


def test_layer_scale_contract() -> None:
    check_layer(LayerScale(0.3), TOKENS, output_shape=(2, 5, 7), parameters=7)


def test_layer_scale_multiplies_each_channel() -> None:
    layer = LayerScale(0.25)
    assert_close(layer(TOKENS), TOKENS * 0.25, 0.0)
    layer.set_weights([np.arange(7.0)])
    assert_close(numpy(layer(TOKENS))[..., 3], TOKENS[..., 3] * 3, 1e-6)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), True, "1"])
def test_layer_scale_starts_above_zero(value: object) -> None:
    with pytest.raises(ValueError, match=r"`initial_value` must be a positive number\."):
        LayerScale(value)
