"""Image classification task."""

from keras_vit.tasks.classification.calibration import Calibration, Reliability, calibrate
from keras_vit.tasks.classification.figures import confusion_matrix, reliability_diagram
from keras_vit.tasks.classification.metrics import ClassScores, Report, evaluate_predictions

__all__ = [
    "Calibration",
    "ClassScores",
    "Reliability",
    "Report",
    "calibrate",
    "confusion_matrix",
    "evaluate_predictions",
    "reliability_diagram",
]
