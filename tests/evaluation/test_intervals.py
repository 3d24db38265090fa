from __future__ import annotations

import pytest

from keras_vit.evaluation.intervals import wilson


@pytest.mark.parametrize(
    ("right", "total", "expected"),
    # E. B. Wilson (1927): centre (p + z^2 / 2n) / (1 + z^2 / n) with z = 1.959964
    [(8, 10, (0.4901625, 0.9433178)), (0, 5, (0.0, 0.4344825)), (5, 5, (0.5655175, 1.0))],
)
def test_wilson_interval(right: int, total: int, expected: tuple[float, float]) -> None:
    assert wilson(right, total) == pytest.approx(expected, abs=1e-6)
