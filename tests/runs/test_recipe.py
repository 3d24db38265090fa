from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from keras_vit.data import Augmentation
from keras_vit.training import Recipe

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "epochs",
            0,
            "`epochs` must be 1 or more, or 0 with ridge_head=true and ema_momentum=0. Rec",
        ),
        ("epochs", 2.5, "`epochs` must be a non-negative integer. Received: epochs=2.5"),
        ("batch_size", -3, "`batch_size` must be a positive integer. Received: batch_size=-3"),
        ("optimizer", "adamv", "`optimizer` must be one of .* Did you mean 'adamw'"),
        ("learning_rate", -0.1, "`learning_rate` must be a non-negative number. Received: .*=-0.1"),
        ("learning_rate", float("nan"), "`learning_rate` must be a non-negative number.*=nan"),
        ("learning_rate", "1e-4", "`learning_rate` must be a non-negative number.*='1e-4'"),
        ("layer_decay", "0.65", r"`layer_decay` must be in \(0, 1\]. Received: .*='0.65'"),
        ("final_fraction", None, r"`final_fraction` must be in \[0, 1\].*=None"),
        ("warmup_fraction", 1.0, r"`warmup_fraction` must be a number in \[0, 1\).*=1.0"),
        ("weight_decay", -1, "`weight_decay` must be a non-negative number. Received: .*=-1"),
        ("clip_norm", -2, "`clip_norm` must be a non-negative number. Received: clip_norm=-2"),
        ("clip_norm", float("inf"), "`clip_norm` must be a non-negative number.*=inf"),
        ("label_smoothing", 1, r"`label_smoothing` must be a number in \[0, 1\).*=1"),
        ("dropout_rate", -0.1, r"`dropout_rate` must be a number in \[0, 1\).*=-0.1"),
        ("stochastic_depth_rate", 1, r"`stochastic_depth_rate` must be a number in \[0, 1\).*=1"),
        ("accumulation_steps", 0, "`accumulation_steps` must be a positive integer"),
        ("accumulation_steps", 3, "`batch_size` must be a multiple of `accumulation_steps`.*=16"),
        ("image_size", (224, 0), "`image_size`"),
        ("warmup_steps", -1, "`warmup_steps` must be"),
        ("decay", "stairs", "`decay` must be one of 'cosine', 'linear', 'rsqrt', 'constant'"),
        ("final_fraction", 1.1, r"`final_fraction` must be in \[0, 1\].*=1.1"),
        ("timescale", 0, "`timescale` must be"),
        ("layer_decay", 0, r"`layer_decay` must be in \(0, 1\]. Received: layer_decay=0"),
        ("layer_decay", 1.2, r"`layer_decay` must be in \(0, 1\]. Received: layer_decay=1.2"),
        ("beta_2", 1, r"`beta_2` must be a number in \[0, 1\)"),
        ("weight_decay_on", "biases", "`weight_decay_on` must be one of 'kernels', 'all'"),
        ("ema_momentum", 1, r"`ema_momentum` must be a number in \[0, 1\)"),
        ("loss", "hinge", "`loss` must be one of 'softmax', 'sigmoid', 'softmax_dice'"),
        ("class_weights", "equal", "`class_weights` must be one of 'none', 'balanced'"),
        ("distillation", "warm", "`distillation` must be one of 'none', 'soft', 'hard'"),
        ("distillation_weight", -0.1, r"`distillation_weight` must be in \[0, 1\]"),
        ("distillation_temperature", 0, "`distillation_temperature` must be"),
        ("precision", "float31", "`precision` must be one of .* Did you mean 'float32'"),
        ("seed", -1, r"`seed` must be in \[0, 2\*\*32\). Received: seed=-1"),
        ("seed", 2**32, r"`seed` must be in \[0, 2\*\*32\). Received: seed=4294967296"),
    ],
)
def test_recipe_rejects(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{field: value})


def test_recipe_takes_the_limits() -> None:
    recipe = Recipe(learning_rate=0, warmup_fraction=0, weight_decay=0, clip_norm=0, image_size=7)
    assert recipe.image_size == (7, 7)


def test_replace_keeps_what_is_none() -> None:
    base = Recipe(epochs=5, seed=7, augmentation=Augmentation(flip=False))
    assert base.replace(epochs=None, flip=None, seed=None) == base
    assert base.replace(epochs=3, flip=None) == dataclasses.replace(base, epochs=3)


def test_replace_takes_none_for_the_size_of_the_weights() -> None:
    assert Recipe(image_size=(32, 48)).replace(image_size=None, epochs=3) == Recipe(epochs=3)


def test_replace_takes_values_that_are_false() -> None:
    changed = Recipe(weight_decay=0.1).replace(flip=False, weight_decay=0, seed=0)
    assert (changed.augmentation.flip, changed.weight_decay, changed.seed) == (False, 0, 0)


def test_replace_reaches_the_augmentation() -> None:
    changed = Recipe().replace(augmentation=Augmentation(erasing=0.5), mixup=0.2, epochs=9)
    assert changed == Recipe(epochs=9, augmentation=Augmentation(erasing=0.5, mixup=0.2))


def test_replace_checks() -> None:
    with pytest.raises(ValueError, match="`epochs` must be 1 or more"):
        Recipe().replace(epochs=0)
    with pytest.raises(ValueError, match=r"'mixpu' is not a recipe field.*Did you mean 'mixup'"):
        Recipe().replace(mixpu=0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 5}, "`layers` must be a list. Received: layers=5"),
        ({"augmentation": 5}, "`augmentation` must be of the class Augmentation. Received: .*=5"),
        ({"augmentation": 5, "mixup": 0.2}, "`augmentation` must be of the class Augmentation"),
        ({"trainable": "head/*"}, r"`trainable` must be a list. Received: trainable='head/\*'"),
        ({"trainable": (11,)}, r"`trainable` must only contain text. Received: trainable=\(11,\)"),
        ({"lora_layers": ["*", None]}, r"`lora_layers` must only contain text.*=\['\*', None\]"),
        ({"remat": 1}, "`remat` must be true or false. Received: remat=1"),
        ({"precision": (1,)}, r"`precision` must be one of 'auto', .*Received: precision=\(1,\)"),
        ({"seed": "a"}, r"`seed` must be in \[0, 2\*\*32\). Received: seed='a'"),
    ],
)
def test_recipe_rejects_values_of_another_type(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe().replace(**changes)


def test_seed_may_be_an_integer_of_numpy() -> None:
    assert Recipe(seed=np.int64(3)).seed == 3
