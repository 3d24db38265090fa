"""Training with `model.fit`: a recipe and a folder of images to a run folder."""

from keras_vit.training.recipe import FINETUNE, FROM_SCRATCH, SGD, Recipe
from keras_vit.training.run import Run, RunConfig
from keras_vit.training.train import train

__all__ = ["FINETUNE", "FROM_SCRATCH", "SGD", "Recipe", "Run", "RunConfig", "train"]
