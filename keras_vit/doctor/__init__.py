"""Diagnosis of common mistakes in a model, its data and its training."""

from keras_vit.doctor.examine import examine
from keras_vit.doctor.finding import Finding

__all__ = ["Finding", "examine"]
