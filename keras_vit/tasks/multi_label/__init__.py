"""Multi-label image classification task."""

from keras_vit.tasks.multi_label.figures import label_scores
from keras_vit.tasks.multi_label.metrics import (
    LabelScores,
    MultiLabelReport,
    choose_thresholds,
    evaluate_labels,
)

__all__ = [
    "LabelScores",
    "MultiLabelReport",
    "choose_thresholds",
    "evaluate_labels",
    "label_scores",
]
