from __future__ import annotations

import io

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import pipeline
from keras_vit.models import FeatureExtractor
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification import explain
from keras_vit.visualization import relevance_maps
from keras_vit.visualization.attention_maps import METHODS
from tests.data.test_exif import block, photo, with_pil
from tests.helpers import normal, tiny_model

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
@pytest.mark.parametrize("methods", [METHODS, ("rollout",)])
def test_maps_in_batches_are_those_of_all_at_once(methods: tuple[str, ...]) -> None:
    extractor = FeatureExtractor(tiny_model())
    images, classes = normal(19, 15, 14, 3), np.arange(19) % 11
    found = explain.maps_in_batches(extractor, images, methods, classes)
    assert tuple(found) == methods
    for method, values in found.items():
        expected = relevance_maps(extractor, images, method, classes=classes)
        np.testing.assert_allclose(values, expected, atol=1e-5)  # measured 4e-7


@pytest.mark.parametrize(("channels", "number"), [("rgb", 3), ("bgr", 3), ("grayscale", 1)])
def test_pixels_are_in_the_contracts_order(channels: str, number: int) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (9, 7), (200, 100, 50)).save(buffer, "PNG")
    found = pipeline.read_pixels(
        [buffer.getvalue()] * 2, Preprocessing(size=(8, 12), channels=channels)
    )
    assert found.shape == (2, 8, 12, number)
    assert found.dtype == np.uint8
    expected = {"rgb": [200, 100, 50], "bgr": [50, 100, 200]}.get(channels)
    if expected:
        assert found[0, 4, 6].tolist() == expected
    else:
        assert 100 < found[0, 4, 6, 0] < 200


def test_pixels_are_upright() -> None:
    preprocessing = Preprocessing(size=(8, 12), resize="squash")
    turned = photo("jpeg", block(6))
    expected = pipeline.read_pixels([photo("png", image=with_pil(turned))], preprocessing)
    np.testing.assert_array_equal(pipeline.read_pixels([turned], preprocessing), expected)
