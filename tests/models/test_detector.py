from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.detector import detector_logits, with_scores
from tests.helpers import normal, numpy, randomise, tiny_config

SIZE = {"image_size": (48, 64), "patch_size": 16, "classes": 0, "pooling": "none"}


def test_scores_are_those_of_the_logits(tmp_path: Path) -> None:
    model = randomise(detector_logits(models.build(tiny_config(**SIZE)), classes=3, width=8))
    cells = 6 * 8 + 3 * 4 + 2 * 2
    assert model.output_shape == (None, cells, 7)
    images = normal(2, 48, 64, 3)
    outputs = numpy(model(images))
    found = with_scores(model)
    assert found.output_shape == (None, cells, 7)
    np.testing.assert_array_equal(numpy(found(images))[..., :4], outputs[..., :4])
    scores = 1 / (1 + np.exp(-outputs[..., 4:]))
    # Measured: 1e-7.
    np.testing.assert_allclose(numpy(found(images))[..., 4:], scores, atol=1e-6)
    found.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(numpy(again(images)), numpy(found(images)))


def test_first_scores_are_low_and_first_boxes_cover_some_cells() -> None:
    model = models.Detector(models.build(tiny_config(**SIZE)), classes=3, width=8)
    found = numpy(model(normal(1, 48, 64, 3)))
    assert 0.001 < np.median(found[..., 4:]) < 0.1
    heights = found[0, :48, 2] - found[0, :48, 0]
    assert 8 < np.median(heights) < 80


def test_detector_refuses_any_size() -> None:
    backbone = models.build(tiny_config(classes=0, pooling="none", image_size=(None, None)))
    with pytest.raises(ValueError, match="`backbone` must have a fixed image size"):
        models.Detector(backbone, 3)
