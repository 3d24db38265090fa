from __future__ import annotations

import numpy as np
import pytest

from keras_vit.models import FeatureExtractor
from keras_vit.visualization import attention_maps
from tests.helpers import normal, tiny_model

IMAGES = normal(2, 15, 14, 3)


@pytest.mark.parametrize("changes", [{}, {"register_tokens": 3}])
def test_attention_maps_are_the_class_tokens_row(changes: dict[str, int]) -> None:
    extractor = FeatureExtractor(tiny_model(**changes))
    found = attention_maps(extractor, IMAGES)
    attention = np.stack(extractor.activations(IMAGES).attention)
    assert found.shape == (2, 2, 4, 5, 7)
    np.testing.assert_allclose(found.reshape(2, 2, 4, 35), attention[..., 0, -35:], rtol=1e-6)


def test_attention_maps_of_a_patch() -> None:
    extractor = FeatureExtractor(tiny_model())
    found = attention_maps(extractor, IMAGES, query=(3, 2))
    attention = np.stack(extractor.activations(IMAGES).attention)
    np.testing.assert_allclose(
        found.reshape(2, 2, 4, 35), attention[..., 1 + 3 * 7 + 2, 1:], rtol=1e-6
    )


def test_attention_maps_of_what_averages_its_patches() -> None:
    extractor = FeatureExtractor(tiny_model(pooling="gap", class_token=False))
    attention = np.stack(extractor.activations(IMAGES).attention)
    found = attention_maps(extractor, IMAGES).reshape(2, 2, 4, 35)
    np.testing.assert_allclose(found, attention.mean(axis=-2), rtol=1e-5)


@pytest.mark.parametrize("query", [(5, 0), (0, 7), (-1, 0)])
def test_attention_maps_of_a_patch_that_is_not_there(query: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="`query` must be the row and column of one of the 5 x 7"):
        attention_maps(tiny_model(), IMAGES, query=query)
