from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.dense import Segmenter
from tests.helpers import JIT, normal, numpy, tiny_config


@pytest.mark.parametrize("head", [pytest.param("adapter", marks=pytest.mark.slow), "linear"])
def test_segmenter_trains_every_variable_and_reloads(head: str, tmp_path: Path) -> None:
    backbone = models.build(tiny_config(classes=0, pooling="none"))
    model = Segmenter(backbone, classes=3, head=head, width=8)
    assert model.output_shape == (None, 15, 14, 3)
    images, masks = normal(4, 15, 14, 3), np.arange(4 * 15 * 14).reshape(4, 15, 14) % 3
    before = [numpy(variable) for variable in model.trainable_variables]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=JIT)
    model.fit(images, masks, verbose=0)
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert (numpy(variable) != old).any(), variable.path
    model.save(tmp_path / "m.keras")
    copy = keras.models.load_model(tmp_path / "m.keras")
    assert (copy.predict(images, verbose=0) == model.predict(images, verbose=0)).all()


def test_adapter_works_at_a_quarter_of_the_size() -> None:
    backbone = models.build(tiny_config(image_size=(48, 32), patch_size=16, num_layers=5))
    model = Segmenter(backbone, classes=7, width=8)
    assert model.get_layer("head").output.shape == (None, 12, 8, 7)
    names = [layer.name for layer in model.layers]
    blocks = [name for name in names if name.startswith("block_") and name.endswith("_norm")]
    assert blocks == ["block_00_norm", "block_01_norm", "block_02_norm", "block_04_norm"]


def test_segmenter_refuses_other_heads_and_any_size() -> None:
    backbone = models.build(tiny_config(classes=0, pooling="none", image_size=(None, None)))
    with pytest.raises(ValueError, match="`backbone` must have a fixed image size"):
        Segmenter(backbone, 3)
    with pytest.raises(ValueError, match="`head` must be"):
        Segmenter(models.build(tiny_config()), 3, head="mlp")
