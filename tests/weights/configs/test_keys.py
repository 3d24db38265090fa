from __future__ import annotations

from typing import Any

import pytest

from keras_vit.weights.configs.keys import image_sides, present


def test_present_takes_what_is_there() -> None:
    content = {"crop_pct": 0.9, "mean": None, "other": 3}
    names = {"crop_pct": "crop_fraction", "mean": "mean", "std": "std"}
    assert present(content, names) == {"crop_fraction": 0.9, "mean": None}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        *((7, (7, 7)), ([5, 7], (5, 7)), ({"height": 5, "width": 7}, (5, 7))),
        *(({"shortest_edge": 7}, (7, 7)), (None, None), ([5], None), ("7", None)),
    ],
)
def test_image_sides(size: Any, expected: tuple[int, int] | None) -> None:
    assert image_sides(size) == expected
