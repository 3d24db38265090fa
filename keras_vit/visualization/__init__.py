"""Pictures of a finished model."""

from keras_vit.visualization.plots import confusion_matrix, training_curves

__all__ = ["confusion_matrix", "training_curves"]
