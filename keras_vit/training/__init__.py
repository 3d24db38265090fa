"""Model training: the training loop, devices, optimizers and checkpoints."""

from keras_vit.runs.config import PretrainConfig, RunConfig, read_config
from keras_vit.runs.named_recipes import RECIPES, augreg, recipe
from keras_vit.runs.pretraining_recipes import PRETRAINING_RECIPES, pretraining_recipe
from keras_vit.runs.recipe import Recipe
from keras_vit.tasks.run_data import Run
from keras_vit.training.distribution import devices
from keras_vit.training.folds import FoldsReport, train_folds
from keras_vit.training.loop import fit_run

# Aliases with the names of the commands.
train = pretrain = fit_run

__all__ = [
    "PRETRAINING_RECIPES",
    "RECIPES",
    "FoldsReport",
    "PretrainConfig",
    "Recipe",
    "Run",
    "RunConfig",
    "augreg",
    "devices",
    "fit_run",
    "pretrain",
    "pretraining_recipe",
    "read_config",
    "recipe",
    "train",
    "train_folds",
]
