"""Scores of a finished model."""

from keras_vit.evaluation.calibration import Calibration, Reliability, calibrate
from keras_vit.evaluation.class_alignment import align
from keras_vit.evaluation.class_scores import ClassScores
from keras_vit.evaluation.feature_probes import linear_accuracy, nearest, neighbour_accuracy
from keras_vit.evaluation.few_shot import FewShot, LeastSquares, few_shot, fit_least_squares
from keras_vit.evaluation.label_scores import LabelScores
from keras_vit.evaluation.metrics import evaluate_predictions
from keras_vit.evaluation.multi_label_metrics import evaluate_labels
from keras_vit.evaluation.multi_label_report import MultiLabelReport
from keras_vit.evaluation.report import Report
from keras_vit.evaluation.slices import Slice, slice_accuracies
from keras_vit.evaluation.statistics import McNemar, mcnemar, mean_interval
from keras_vit.evaluation.thresholds import choose_thresholds

__all__ = [
    "Calibration",
    "ClassScores",
    "FewShot",
    "LabelScores",
    "LeastSquares",
    "McNemar",
    "MultiLabelReport",
    "Reliability",
    "Report",
    "Slice",
    "align",
    "calibrate",
    "choose_thresholds",
    "evaluate_labels",
    "evaluate_predictions",
    "few_shot",
    "fit_least_squares",
    "linear_accuracy",
    "mcnemar",
    "mean_interval",
    "nearest",
    "neighbour_accuracy",
    "slice_accuracies",
]
