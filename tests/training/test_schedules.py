from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit.training.schedules import WarmupDecay
from tests.helpers import numpy


def rates(schedule: WarmupDecay, steps: Any) -> np.ndarray:
    return np.array([float(numpy(schedule(int(step)))) for step in steps])


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({"decay": "cosine"}, [0, 4, 8, 12], [1.0, 0.75, 0.25, 0.0]),
        ({"decay": "cosine", "final_fraction": 0.5}, [0, 6, 12, 99], [1.0, 0.75, 0.5, 0.5]),
        ({"decay": "linear"}, [0, 3, 12], [1.0, 0.75, 0.0]),
        ({"decay": "linear", "final_fraction": 0.2}, [6, 12], [0.6, 0.2]),
        ({"decay": "rsqrt", "timescale": 3}, [0, 9, 24], [1.0, 0.5, 1 / 3]),
        ({"decay": "constant"}, [0, 7, 99], [1.0, 1.0, 1.0]),
        ({"decay": "constant", "warmup_steps": 4}, [0, 1, 4, 9], [0.0, 0.25, 1.0, 1.0]),
        ({"decay": "linear", "warmup_steps": 4}, [2, 4, 8], [0.5, 1.0, 0.5]),
    ],
)
def test_schedule_by_hand(
    settings: dict[str, Any], steps: list[int], expected: list[float]
) -> None:
    schedule = WarmupDecay(2.0, total_steps=12, **settings)
    np.testing.assert_allclose(rates(schedule, steps), 2 * np.array(expected), atol=1e-6)


def test_schedule_equals_the_official_one(test_data: Path) -> None:
    folder = test_data / "reference" / "train"
    content = json.loads((folder / "learning_rate.json").read_text(encoding="utf-8"))
    arrays = np.load(folder / "learning_rate.npz")
    assert len(content["schedules"]) == 5
    for index, given in enumerate(content["schedules"]):
        base = given["base"]
        linear_end = given.get("linear_end", 1e-5) if given["decay_type"] == "linear" else 0.0
        schedule = WarmupDecay(
            base,
            total_steps=given["total_steps"],
            warmup_steps=given["warmup_steps"],
            decay=given["decay_type"],
            final_fraction=linear_end / base,
        )
        found = rates(schedule, arrays[f"steps{index}"])
        # The largest difference seen is 3e-7 of the highest rate: float32.
        np.testing.assert_allclose(found, arrays[f"lr{index}"], atol=1e-6 * base)


def test_schedule_survives_its_configuration() -> None:
    schedule = WarmupDecay(0.3, 50, 7, "rsqrt", 0.1, 20.0)
    copy = WarmupDecay.from_config(schedule.get_config())
    assert copy.get_config() == schedule.get_config()
    np.testing.assert_array_equal(rates(copy, [0, 3, 40]), rates(schedule, [0, 3, 40]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": "cosin"}, "`decay` must be one of .* Did you mean 'cosine'"),
        ({"total_steps": 0}, "`total_steps` must be a positive integer"),
        ({"warmup_steps": -1}, "`warmup_steps` must be"),
        ({"final_fraction": 1.5}, r"`final_fraction` must be in \[0, 1\]. Received: .*=1.5"),
        ({"timescale": 0}, "`timescale` must be a positive number. Received: timescale=0"),
    ],
)
def test_schedule_rejects(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupDecay(**{"peak": 0.1, "total_steps": 10} | settings)
