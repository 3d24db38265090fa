"""Scores of a finished model."""

from keras_vit.evaluation.class_scores import ClassScores
from keras_vit.evaluation.labels import align
from keras_vit.evaluation.metrics import evaluate_predictions
from keras_vit.evaluation.report import Report

__all__ = ["ClassScores", "Report", "align", "evaluate_predictions"]
