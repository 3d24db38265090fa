"""What people read: reports, comparisons, explanations and cards of models that were trained."""

from keras_vit.reports.card import write_card
from keras_vit.reports.comparison import Comparison, compare
from keras_vit.reports.evaluation_page import write_evaluation
from keras_vit.reports.explanation import explain
from keras_vit.reports.judgement import Judgement, Mistake, judge
from keras_vit.reports.probing import Probing, probe

__all__ = [
    "Comparison",
    "Judgement",
    "Mistake",
    "Probing",
    "compare",
    "explain",
    "judge",
    "probe",
    "write_card",
    "write_evaluation",
]
