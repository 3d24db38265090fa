"""Reports on trained models, such as evaluation pages, comparisons and model cards."""

from keras_vit.reports.comparison import Comparison, compare
from keras_vit.reports.drift import Drift, write_drift
from keras_vit.reports.evaluation_page import write_evaluation
from keras_vit.reports.feature_probe import ProbeResult, probe
from keras_vit.reports.model_card import write_card
from keras_vit.reports.wrong_labels import write_label_errors
from keras_vit.tasks.classification.explain import explain

__all__ = [
    "Comparison",
    "Drift",
    "ProbeResult",
    "compare",
    "explain",
    "probe",
    "write_card",
    "write_drift",
    "write_evaluation",
    "write_label_errors",
]
