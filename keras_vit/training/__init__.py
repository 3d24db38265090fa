"""Training with `model.fit`: a recipe and a folder of images to a run folder."""

from keras_vit.runs.config import RunConfig, read_config
from keras_vit.runs.named_recipes import RECIPES, augreg, recipe
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import Run
from keras_vit.training.distribution import devices
from keras_vit.training.pretraining import (
    PRETRAINING_RECIPES,
    PretrainConfig,
    pretrain,
    pretraining_recipe,
)
from keras_vit.training.train import train

__all__ = [
    "PRETRAINING_RECIPES",
    "RECIPES",
    "PretrainConfig",
    "Recipe",
    "Run",
    "RunConfig",
    "augreg",
    "devices",
    "pretrain",
    "pretraining_recipe",
    "read_config",
    "recipe",
    "train",
]
