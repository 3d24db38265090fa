"""Learning from images without labels, to start from with few labelled ones."""

from keras_vit.runs.pretraining_recipes import PRETRAINING_RECIPES, pretraining_recipe
from keras_vit.training.pretraining.pretrain import PretrainConfig, pretrain

__all__ = ["PRETRAINING_RECIPES", "PretrainConfig", "pretrain", "pretraining_recipe"]
