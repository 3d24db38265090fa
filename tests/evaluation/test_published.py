from __future__ import annotations

import pytest

from keras_vit.evaluation.published import FLOWER_CLASSES, FLOWERS, shows_flowers


def test_published_figures_agree_with_themselves() -> None:
    assert [found.accuracy for found in FLOWERS] == [0.956, 0.689]
    for found in FLOWERS:
        assert tuple(row.name for row in found.per_class) == FLOWER_CLASSES
        for row in found.per_class:
            f1 = 2 * row.precision * row.recall / (row.precision + row.recall)
            # All three are rounded to a thousandth.
            assert row.f1 == pytest.approx(f1, abs=1.5e-3)


def test_flowers_are_known_by_their_classes() -> None:
    assert shows_flowers(FLOWER_CLASSES[::-1])
    assert not shows_flowers(FLOWER_CLASSES[1:])
