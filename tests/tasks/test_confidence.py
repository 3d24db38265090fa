from __future__ import annotations

from typing import Any

import pytest

from keras_vit import data, tasks
from keras_vit.tasks.confidence import Confidence

HELD_OUT = data.load("digits").subset(range(9))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.0}, r"`coverage` must be .* \(0, 1\)"),
        ({"false_alarm_rate": 0.0}, r"`false_alarm_rate` must be .* \(0, 1\)"),
        ({"false_alarm_rate": 0.09}, r"at least 1 / \(N \+ 1\) .*: false_alarm_rate=0.09, 9 im"),
        ({"false_alarm_rate": 0.2, "training": None}, "must be used with the folder of a run"),
        ({"nearest_images": True, "training": None}, "`nearest_images` must be used with"),
        ({"prototypes": True, "training": None}, "`prototypes` must be used with the folder"),
        ({"prototypes": True, "task": "multi_label"}, "`prototypes` must be left out unless"),
        ({"false_alarm_rate": 0.2, "task": "regression"}, "unless every image has one class"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    task = tasks.get(options.pop("task", "classification"))(None)
    given = {"coverage": None, "false_alarm_rate": None, "nearest_images": False, **options}
    given = {"training": lambda: HELD_OUT, "prototypes": False, **given}
    with pytest.raises(ValueError, match=message):
        Confidence(**given, held_out=HELD_OUT).check(task)


def test_options_are_named() -> None:
    found = Confidence(0.9, None, True, False, None, HELD_OUT)
    assert found.names() == ["coverage", "nearest_images"]
