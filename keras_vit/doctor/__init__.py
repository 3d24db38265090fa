"""Finds the usual mistakes in a model, its data and its training: evidence and fix."""

from keras_vit.doctor.examine import examine
from keras_vit.doctor.finding import Finding

__all__ = ["Finding", "examine"]
