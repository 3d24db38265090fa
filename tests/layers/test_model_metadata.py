from __future__ import annotations

import numpy as np

from keras_vit.layers import ModelMetadata
from keras_vit.preprocessing import Preprocessing
from tests.helpers import check_layer, normal, numpy

PREPROCESSING = Preprocessing(
    size=(24, 40), resize="squash", std=0.25, class_names=("cat", "dog", "owl")
)


def test_model_metadata_layer_contract() -> None:
    layer = ModelMetadata(PREPROCESSING, {"hidden_size": 12, "image_size": [24, None]})
    check_layer(layer, normal(2, 3, 5, 4), output_shape=(2, 3, 5, 4), parameters=0)


def test_model_metadata_passes_images_through() -> None:
    images = normal(2, 3, 5, 4)
    np.testing.assert_array_equal(numpy(ModelMetadata(PREPROCESSING)(images)), images)


def test_model_metadata_carries_what_it_is_given() -> None:
    config = ModelMetadata(PREPROCESSING, {"num_heads": 3}).get_config()
    copy = ModelMetadata.from_config(config)
    assert copy.preprocessing == PREPROCESSING
    assert copy.architecture == {"num_heads": 3}
    assert ModelMetadata().preprocessing == Preprocessing()
