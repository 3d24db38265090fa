"""Scores of a finished model."""

from keras_vit.evaluation.class_scores import ClassScores
from keras_vit.evaluation.label_scores import LabelScores
from keras_vit.evaluation.labels import align
from keras_vit.evaluation.metrics import evaluate_predictions
from keras_vit.evaluation.multi_label_metrics import evaluate_labels
from keras_vit.evaluation.multi_label_report import MultiLabelReport
from keras_vit.evaluation.report import Report
from keras_vit.evaluation.thresholds import choose_thresholds

__all__ = [
    "ClassScores",
    "LabelScores",
    "MultiLabelReport",
    "Report",
    "align",
    "choose_thresholds",
    "evaluate_labels",
    "evaluate_predictions",
]
