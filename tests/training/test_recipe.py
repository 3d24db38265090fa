from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from keras_vit import cli
from keras_vit.training import FINETUNE, FROM_SCRATCH, Recipe

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 0, "`epochs` must be a positive integer. Received: epochs=0"),
        ("epochs", 2.5, "`epochs` must be a positive integer. Received: epochs=2.5"),
        ("batch_size", -3, "`batch_size` must be a positive integer. Received: batch_size=-3"),
        ("optimizer", "adamv", "`optimizer` must be one of .* Did you mean 'adamw'"),
        ("learning_rate", -0.1, "`learning_rate` must be a number from 0 up. Received: .*=-0.1"),
        ("learning_rate", float("nan"), "`learning_rate` must be a number from 0 up.*=nan"),
        ("warmup_fraction", 1.0, r"`warmup_fraction` must be a number in \[0, 1\).*=1.0"),
        ("weight_decay", -1, "`weight_decay` must be a number from 0 up. Received: .*=-1"),
        ("clip_norm", -2, "`clip_norm` must be a number from 0 up. Received: clip_norm=-2"),
        ("clip_norm", float("inf"), "`clip_norm` must be a number from 0 up.*=inf"),
        ("label_smoothing", 1, r"`label_smoothing` must be a number in \[0, 1\).*=1"),
        ("crop_area", (0.7, 0.3), r"`crop_area` must be two shares with 0 < .*=\(0.7, 0.3\)"),
        ("crop_area", (0, 1), r"`crop_area` must be two shares with 0 < .*=\(0, 1\)"),
        ("crop_area", (0.5, 1.1), r"`crop_area` must be two shares .* <= 1. Received"),
        ("crop_area", (0.5,), r"`crop_area` must be two shares .*=\(0.5,\)"),
        ("dropout_rate", -0.1, r"`dropout_rate` must be a number in \[0, 1\).*=-0.1"),
        ("stochastic_depth_rate", 1, r"`stochastic_depth_rate` must be a number in \[0, 1\).*=1"),
        ("precision", "float31", "`precision` must be one of .* Did you mean 'float32'"),
        ("seed", -1, r"`seed` must be in \[0, 2\*\*32\). Received: seed=-1"),
        ("seed", 2**32, r"`seed` must be in \[0, 2\*\*32\). Received: seed=4294967296"),
    ],
)
def test_recipe_rejects(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{field: value})


def test_recipe_takes_the_limits() -> None:
    recipe = Recipe(
        learning_rate=0, warmup_fraction=0, weight_decay=0, clip_norm=0, crop_area=[1, 1]
    )
    assert recipe.crop_area == (1.0, 1.0)


def test_replace_keeps_what_is_none() -> None:
    base = Recipe(epochs=5, flip=False, seed=7)
    assert base.replace(epochs=None, flip=None, seed=None) == base
    assert base.replace(epochs=3, flip=None) == dataclasses.replace(base, epochs=3)


def test_replace_takes_values_that_are_false() -> None:
    changed = Recipe(flip=True, weight_decay=0.1).replace(flip=False, weight_decay=0, seed=0)
    assert (changed.flip, changed.weight_decay, changed.seed) == (False, 0, 0)


def test_replace_checks() -> None:
    with pytest.raises(ValueError, match="`epochs` must be a positive integer"):
        FINETUNE.replace(epochs=0)


def test_from_scratch_trains_longer_and_harder_than_finetune() -> None:
    assert FROM_SCRATCH.epochs > FINETUNE.epochs
    assert FROM_SCRATCH.learning_rate > FINETUNE.learning_rate
    assert FROM_SCRATCH.weight_decay > FINETUNE.weight_decay


@pytest.mark.parametrize("recipe", [FINETUNE, FROM_SCRATCH])
def test_help_of_train_names_the_numbers(recipe: Recipe) -> None:
    rate = f"{recipe.learning_rate:.0e}".replace("e-0", "e-")
    text = " ".join((cli.train.__doc__ or "").split())
    assert f"{recipe.epochs} epochs" in text
    assert f"at {rate}, batches of {recipe.batch_size}." in text
