from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import zoo
from keras_vit.reports import cost


def test_flops_of_a_case_worked_by_hand() -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 9, 3)),
            keras.layers.Conv2D(5, 3, use_bias=False),  # 6 x 7 places of 3 x 3 x 3 times 5
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(7, use_bias=False),
        ]
    )
    multiplications = 6 * 7 * 27 * 5 + 5 * 7
    assert cost.flops(model) == pytest.approx(2 * multiplications, rel=0.05)


@pytest.mark.slow
def test_flops_of_published_networks() -> None:
    """Multiply-adds: 1.26e9 for DeiT-Ti, and 3.9e9 for ResNet50 (keras.io has 3.8)."""
    assert cost.flops(zoo.ViTTi16(weights=None)) == pytest.approx(2.5e9, rel=0.03)
    assert cost.flops(keras.applications.ResNet50(weights=None)) == pytest.approx(7.7e9, rel=0.03)


@pytest.mark.slow
def test_peak_memory_is_what_was_held_at_once() -> None:
    before = cost.peak_memory()
    if before is None:
        pytest.skip("peak memory is not available without /proc")
    block = np.ones(before, "uint8")
    assert cost.peak_memory() - before > 0.5 * block.nbytes


def test_peak_memory_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, **options: str) -> str:
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", missing)
    assert cost.peak_memory() is None


def test_inference_speed_counts_images() -> None:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    assert cost.inference_speed(model, images=8, batch_size=4) > 1
