"""The official code's resizing of positions, as `interpolate_posembed` calls SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import zoom

from keras_vit.weights.containers.npz import read_npz
from keras_vit.zoo import ViTTi16
from tests.helpers import assert_close, weights_of

NPZ = "Ti_16-augreg-i21k-imagenet2012-res_224.npz"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Position embeddings")
@pytest.mark.parametrize("size", [(384, 384), (224, 320), (160, 96)], ids=str)
def test_resizing_is_that_of_the_official_code(size: tuple[int, int], test_data: Path) -> None:
    path = test_data / "weights" / NPZ
    table = read_npz(path)["Transformer/posembed_input/pos_embedding"][0]
    weights = weights_of(ViTTi16(weights=path, input_shape=(*size, 3)))
    factors = (size[0] / 224, size[1] / 224, 1)
    expected = zoom(table[1:].reshape(14, 14, -1), factors, order=1)
    # Values of up to 5; measured: 1.1e-06.
    assert_close(weights["patch_encoder/position"], expected, 2e-6)
    np.testing.assert_array_equal(weights["patch_encoder/prefix_position"][0], table[:1])
