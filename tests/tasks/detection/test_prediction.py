from __future__ import annotations

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.detection.prediction import MOST, found_objects

pytestmark = pytest.mark.tensorflow


def test_objects_are_in_the_pixels_of_the_image() -> None:
    preprocessing = Preprocessing(size=(32, 64), resize="squash", class_names=("a", "b"))
    output = np.array([[8, 16, 16, 48, 0.2, 0.1], [-9, 0, 99, 64, 0.3, 0.9]], "f")
    found = found_objects(output, preprocessing, (64, 32))  # twice as high, half as wide
    np.testing.assert_allclose(found[0], [0, 0, 64, 32, 0.9, 1])
    np.testing.assert_allclose(found[1], [16, 8, 32, 24, 0.2, 0])


def test_only_the_best_objects_are_kept() -> None:
    preprocessing = Preprocessing(size=(32, 32), class_names=("a",))
    output = np.tile(np.array([0, 0, 9, 9, 0.5], "f"), (MOST + 7, 1))
    output[:, 4] = np.linspace(0, 1, len(output))
    found = found_objects(output, preprocessing, (32, 32))
    assert (len(found), found[0, 4]) == (MOST, 1)
