from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models import cloning
from keras_vit.zoo import ViTMicro4
from tests.helpers import normal, numpy


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", None])
def test_model_in_float16_scales_the_loss_when_compiled(policy: str | None) -> None:
    """The outputs are those of the same model under a global policy."""
    model = ViTMicro4(weights=None, input_shape=(8, 8, 3), classes=3, dtype=policy)
    model.compile("sgd", "mse")
    scales = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scales == (policy == "mixed_float16")
    keras.config.set_dtype_policy(policy or "float32")
    try:
        other = ViTMicro4(weights=None, input_shape=(8, 8, 3), classes=3)
    finally:
        keras.config.set_dtype_policy("float32")
    for each in (model, other):
        each.set_weights([0.1 * normal(*weight.shape) for weight in model.get_weights()])
    if policy == "mixed_float16":
        images = normal(2, 8, 8, 3)
        np.testing.assert_array_equal(model(images), other(images))
        assert np.ptp(numpy(model(images))) > 0.01


def test_copies_and_dense_models_in_float16_scale_the_loss() -> None:
    policy = "mixed_float16"
    plain = ViTMicro4(weights=None, input_shape=(32, 64, 3), classes=3)
    half = models.rebuild(plain, dtype=policy)
    images = keras.Input((32, 64, 3))
    around = keras.Model(images, half(keras.layers.Rescaling(1 / 255)(images)))
    preprocessing = models.preprocessing_of(plain)
    in_float16 = [
        half,
        models.with_preprocessing(half, preprocessing),
        models.with_preprocessing(around, preprocessing),
        models.reduce_tokens(half, 2),
        models.Segmenter(half, 3, head="linear", dtype=policy),
        models.Segmenter(half, 3, head="linear"),  # the gradients of the backbone are float16
        models.Detector(half, 3, width=8, dtype=policy),
    ]
    others = [models.rebuild(half), cloning.to_float32(half), cloning.to_bfloat16(half)]
    for model in (*in_float16, *others):
        model.compile("sgd", "mse")
        scales = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert scales == any(model is each for each in in_float16)
