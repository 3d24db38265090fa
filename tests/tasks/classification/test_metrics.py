from __future__ import annotations

from keras_vit.tasks.classification.metrics import ClassScores


def test_class_scores_are_named_in_json() -> None:
    row = ClassScores("daisy", precision=0.25, recall=0.5, f1=1 / 3, support=7)
    assert list(row._asdict()) == ["name", "precision", "recall", "f1", "support"]
