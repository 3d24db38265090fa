from __future__ import annotations

import numpy as np

from keras_vit.layers import BoxDecoder
from tests.helpers import normal, numpy


def test_boxes_lie_around_the_centers_of_the_cells() -> None:
    distances = normal(2, 3, 5, 4)
    found = numpy(BoxDecoder(8)(distances)).reshape(2, 3, 5, 4)
    for row, column in np.ndindex(3, 5):
        top, left, bottom, right = (8 * np.log1p(np.exp(distances[:, row, column]))).T
        y, x = 8 * row + 4, 8 * column + 4
        expected = np.stack([y - top, x - left, y + bottom, x + right], axis=1)
        # Measured: 4e-6.
        np.testing.assert_allclose(found[:, row, column], expected, atol=1e-4)
