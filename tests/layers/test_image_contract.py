from __future__ import annotations

import numpy as np

from keras_vit.layers import ImageContract
from keras_vit.preprocessing import Preprocessing
from tests.helpers import check_layer, normal, numpy

CONTRACT = Preprocessing(size=(24, 40), resize="squash", std=0.25, labels=("cat", "dog", "owl"))


def test_image_contract_layer_contract() -> None:
    layer = ImageContract(CONTRACT, {"hidden_size": 12, "image_size": [24, None]})
    check_layer(layer, normal(2, 3, 5, 4), output_shape=(2, 3, 5, 4), parameters=0)


def test_image_contract_passes_images_through() -> None:
    images = normal(2, 3, 5, 4)
    np.testing.assert_array_equal(numpy(ImageContract(CONTRACT)(images)), images)


def test_image_contract_carries_what_it_is_given() -> None:
    config = ImageContract(CONTRACT, {"num_heads": 3}).get_config()
    copy = ImageContract.from_config(config)
    assert copy.preprocessing == CONTRACT
    assert copy.architecture == {"num_heads": 3}
    assert ImageContract().preprocessing == Preprocessing()
