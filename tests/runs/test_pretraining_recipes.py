from __future__ import annotations

import pytest

from keras_vit.runs.config import PretrainConfig
from keras_vit.runs.pretraining_recipes import PHOTOGRAPHS, PRETRAINING_RECIPES, pretraining_recipe


def test_masked_autoencoder_has_the_paper_s_numbers() -> None:
    recipe = pretraining_recipe("mae_paper")
    # Table 8 of https://arxiv.org/abs/2111.06377, for a batch of 4096.
    assert recipe.learning_rate == pytest.approx(2.4e-3)
    assert (recipe.beta_1, recipe.beta_2, recipe.weight_decay) == (0.9, 0.95, 0.05)
    assert recipe.warmup_fraction * recipe.epochs == pytest.approx(40)
    assert (recipe.epochs, recipe.batch_size, recipe.decay) == (800, 4096, "cosine")
    assert (recipe.optimizer, recipe.clip_norm) == ("adamw", 0)
    assert recipe.augmentation.crop_area == (0.2, 1.0)
    assert recipe.augmentation.flip


def test_masked_patches_have_the_paper_s_numbers() -> None:
    recipe = pretraining_recipe("masked_patches_paper")
    # Appendix B.1.2 of https://arxiv.org/abs/2010.11929.
    assert (recipe.learning_rate, recipe.warmup_steps, recipe.batch_size) == (2e-4, 10_000, 4096)
    assert (recipe.decay, recipe.epochs, recipe.beta_2) == ("cosine", 14, 0.999)


@pytest.mark.parametrize("name", PRETRAINING_RECIPES)
def test_every_recipe_is_one_of_pretraining(name: str) -> None:
    published = PRETRAINING_RECIPES[name]
    assert PretrainConfig("photos", "ViTTi16", recipe=published.recipe).recipe is published.recipe
    assert published.what.endswith(".")
    assert published.source


def test_default_is_for_photographs() -> None:
    assert PretrainConfig("photos", "ViTTi16").recipe == PHOTOGRAPHS
    assert pretraining_recipe("photographs") == PHOTOGRAPHS


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"`recipe` must be one of .* Did you mean 'mae_paper'"):
        pretraining_recipe("mae_papr")
