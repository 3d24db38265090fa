"""Changes of the default recipe for few images."""

from __future__ import annotations

from typing import Any

import pytest

from keras_vit import training
from tests.cli.commands import Call

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {"layer_decay": 0.5}),
        (("--set", "layer_decay=0.75"), {}),
        (("--optimizer", "sgd"), {}),
        (("--weights", "none"), {}),
        (("--task", "regression"), {}),
    ],
)
def test_default_recipe_has_other_values_for_few_images(
    call: Call, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], changes: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(training, "train", lambda *_, **options: asked.update(options))
    call("train", "--data", "digits", "--weights", "imagenet", *options)
    assert (asked["least_steps"], asked["few_images"]) == (100, changes)
