from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.training import Recipe
from keras_vit.training.optimizers import build_optimizer

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def model() -> keras.Model:
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(4, 6), classes=7
    )
    return models.build(config)


def rates(optimizer: keras.Optimizer, steps: list[int]) -> list[float]:
    return [float(optimizer._learning_rate(step)) for step in steps]


def test_schedule_warms_up_and_falls_to_zero(model: keras.Model) -> None:
    recipe = Recipe(learning_rate=0.8, warmup_fraction=0.25)
    # 3 of 12 steps rise; the cosine is at 1/3, 1/2 and 2/3 of its way after 3, 4.5 and 6 more.
    found = rates(build_optimizer(recipe, model, steps=12), [0, 1, 2, 3, 6, 9, 12, 15])
    expected = [0, 0.8 / 3, 1.6 / 3, 0.8, 0.8 * 0.75, 0.8 * 0.25, 0, 0]
    assert found == pytest.approx(expected, abs=1e-6)


def test_schedule_without_warm_up_starts_at_the_top(model: keras.Model) -> None:
    recipe = Recipe(learning_rate=0.8, warmup_fraction=0)
    found = rates(build_optimizer(recipe, model, steps=8), [0, 2, 4, 8])
    half = np.sqrt(0.5)
    assert found == pytest.approx([0.8, 0.4 * (1 + half), 0.4, 0], abs=1e-6)


def test_schedule_of_a_single_step_trains(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(learning_rate=0.8, warmup_fraction=0.4), model, steps=1)
    assert rates(optimizer, [0]) == pytest.approx([0.8])


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weight_decay_shrinks_kernels_only(model: keras.Model, name: str) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.5, weight_decay=0.2, warmup_fraction=0)
    optimizer = build_optimizer(recipe, model, steps=10)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 3.0))
    zeros = [np.zeros(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    found = {v.path: float(np.mean(v)) for v in model.trainable_variables}
    decayed = {path for path, value in found.items() if value != 3}
    assert decayed == {path for path in found if path.endswith("/kernel")}
    assert decayed >= {"head/kernel", "patch_encoder/projection/kernel"}
    # Decoupled: 3 - 0.5 * 0.2 * 3
    assert [found[path] for path in decayed] == pytest.approx([2.7] * len(decayed))


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_no_weight_decay_leaves_everything(model: keras.Model, name: str) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.5, weight_decay=0, warmup_fraction=0)
    optimizer = build_optimizer(recipe, model, steps=10)
    before = model.get_weights()
    zeros = [np.zeros(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_gradients_are_clipped_to_a_global_norm(model: keras.Model) -> None:
    recipe = Recipe(
        optimizer="sgd", learning_rate=1, weight_decay=0, warmup_fraction=0, clip_norm=2
    )
    optimizer = build_optimizer(recipe, model, steps=10)
    assert optimizer.global_clipnorm == 2
    before = model.get_weights()
    ones = [np.ones(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(ones, model.trainable_variables)
    moved = [old - new for old, new in zip(before, model.get_weights(), strict=True)]
    assert np.sqrt(sum(np.sum(step**2) for step in moved)) == pytest.approx(2, rel=1e-4)


def test_clip_norm_of_zero_clips_nothing(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(clip_norm=0), model, steps=10)
    assert optimizer.global_clipnorm is None


def test_sgd_has_momentum(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(optimizer="sgd"), model, steps=10)
    assert isinstance(optimizer, keras.optimizers.SGD)
    assert optimizer.momentum == 0.9


def test_adamw_is_the_default(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(weight_decay=0.07), model, steps=10)
    assert isinstance(optimizer, keras.optimizers.AdamW)
    assert optimizer.weight_decay == 0.07


def test_float16_scales_the_loss(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(precision="mixed_float16"), model, steps=10)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.AdamW)
