from __future__ import annotations

import math

import pytest

from keras_vit.export import Comparison


@pytest.mark.parametrize(
    ("difference", "ok"), [(0.0, True), (1e-5, True), (1.1e-5, False), (math.nan, False)]
)
def test_comparison_is_ok_within_the_tolerance(difference: float, ok: bool) -> None:
    assert Comparison("model.tflite", difference, worst_image=3, tolerance=1e-5).ok is ok
