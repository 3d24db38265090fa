"""Pictures of a finished model, and of what it learns from."""

from keras_vit.visualization.multi_label import label_scores
from keras_vit.visualization.plots import (
    confusion_matrix,
    contact_sheet,
    reconstruction_sheet,
    training_curves,
)

__all__ = [
    "confusion_matrix",
    "contact_sheet",
    "label_scores",
    "reconstruction_sheet",
    "training_curves",
]
