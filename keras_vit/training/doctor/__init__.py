"""Finds the usual mistakes in a model, its data and its training: evidence and cure."""

from keras_vit.training.doctor.examine import examine
from keras_vit.training.doctor.finding import Finding

__all__ = ["Finding", "examine"]
