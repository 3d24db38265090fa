"""Evaluation metrics and statistics for trained models."""

from keras_vit.evaluation.class_alignment import align
from keras_vit.evaluation.feature_probes import linear_accuracy, nearest, neighbor_accuracy
from keras_vit.evaluation.few_shot import FewShot, LeastSquares, few_shot, fit_least_squares
from keras_vit.evaluation.label_errors import label_errors
from keras_vit.evaluation.slices import Slice, slice_accuracies
from keras_vit.evaluation.statistics import McNemar, mcnemar, mean_interval

__all__ = [
    "FewShot",
    "LeastSquares",
    "McNemar",
    "Slice",
    "align",
    "few_shot",
    "fit_least_squares",
    "label_errors",
    "linear_accuracy",
    "mcnemar",
    "mean_interval",
    "nearest",
    "neighbor_accuracy",
    "slice_accuracies",
]
