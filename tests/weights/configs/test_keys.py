from __future__ import annotations

from keras_vit.weights.configs.keys import present


def test_present_takes_what_is_there() -> None:
    content = {"crop_pct": 0.9, "mean": None, "other": 3}
    names = {"crop_pct": "crop_fraction", "mean": "mean", "std": "std"}
    assert present(content, names) == {"crop_fraction": 0.9, "mean": None}
