from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.export.integer_operators import quantizable
from tests.export.conftest import randomise, tiny

IMAGES = np.random.default_rng(5).normal(size=(3, 10, 14, 3)).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    "changes",
    [{}, {"pooling": "map"}, {"layer_scale": 0.5, "norm_after_pooling": True, "pooling": "gap"}],
)
def test_the_copy_computes_the_same(changes: dict, measured: bool) -> None:
    model = tiny(**changes)
    before = model.get_weights()
    copy = quantizable(model, measured)
    # measured: 2.4e-7
    np.testing.assert_allclose(copy(IMAGES), model(IMAGES), atol=1e-6)
    for mine, its in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_norms_of_other_kinds_stay() -> None:
    inputs = keras.Input((5, 7))
    normed = keras.layers.LayerNormalization(axis=(1, 2), name="both")(inputs)
    normed = keras.layers.LayerNormalization(scale=False, name="plain")(normed)
    model = randomise(keras.Model(inputs, normed))
    copy = quantizable(model)
    assert [type(layer) for layer in copy.layers] == [type(layer) for layer in model.layers]
    images = IMAGES[:, :5, :7, 0]
    np.testing.assert_allclose(copy(images), model(images), atol=1e-6)


def test_a_token_that_is_constant_stays_finite() -> None:
    inputs = keras.Input((5, 7))
    model = keras.Model(inputs, keras.layers.LayerNormalization()(inputs))
    images = np.zeros((1, 5, 7), np.float32)
    images[0, 1] = IMAGES[0, 0, :7, 0] * 1000
    found = quantizable(model, measured=True)(images)
    np.testing.assert_allclose(found, model(images), atol=1e-5)
