"""Named recipes for self-supervised pre-training, with their sources."""

from __future__ import annotations

from keras_vit import arguments
from keras_vit.data import Augmentation
from keras_vit.runs.named_recipes import PAPER, NamedRecipe
from keras_vit.runs.recipe import Recipe

# Momentum, weight decay and crops as in Table 8 of https://arxiv.org/abs/2111.06377.
_MAE = Recipe(beta_2=0.95, weight_decay=0.05, augmentation=Augmentation(crop_area=(0.2, 1.0)))

# A few thousand photographs on one machine.
PHOTOGRAPHS = _MAE.replace(epochs=100, batch_size=64, learning_rate=2e-3)

PRETRAINING_RECIPES = {
    "photographs": NamedRecipe(
        PHOTOGRAPHS,
        "Pre-training on a few thousand photographs with either method (the default).",
        "keras_vit",
    ),
    "mae_paper": NamedRecipe(
        _MAE.replace(
            epochs=800,
            batch_size=4096,
            learning_rate=1.5e-4 * 4096 / 256,
            warmup_fraction=40 / 800,
            clip_norm=0.0,
        ),
        "Masked autoencoder on ImageNet-1k in 800 epochs.",
        "Table 8 of https://arxiv.org/abs/2111.06377 and PRETRAIN.md of facebookresearch/mae",
        "The learning rate is the paper's 1.5e-4 for 256 images, times 4096 / 256. Set the "
        "decoder separately: 8 blocks, width 512, 16 heads. Tokens have no weight decay here.",
    ),
    "masked_patches_paper": NamedRecipe(
        PAPER.replace(epochs=14, batch_size=4096, learning_rate=2e-4, weight_decay=0.01),
        "Masked patch prediction of the ViT paper: 1 M steps, 14 epochs of JFT-300M.",
        "Appendix B.1.2 of https://arxiv.org/abs/2010.11929",
        "The paper states no weight decay, clipping or cropping here: 0.01 is from BERT "
        "(https://arxiv.org/abs/1810.04805), the others are from its supervised training.",
    ),
}


def pretraining_recipe(name: str) -> Recipe:
    """Returns a recipe for self-supervised pre-training by name.

    Args:
        name: A key of `PRETRAINING_RECIPES`.

    Returns:
        The recipe.

    Raises:
        ValueError: If there is no recipe of this name; the message lists all names.

    Examples:
        >>> pretraining_recipe("mae_paper").beta_2
        0.95
    """
    arguments.one_of("recipe", name, tuple(PRETRAINING_RECIPES))
    return PRETRAINING_RECIPES[name].recipe
