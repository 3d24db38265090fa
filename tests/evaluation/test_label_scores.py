from __future__ import annotations

from keras_vit.evaluation import LabelScores


def test_label_scores_are_named_in_json() -> None:
    row = LabelScores("daisy", 0.25, 0.5, 1 / 3, None, support=7, threshold=0.4)
    assert list(row._asdict()) == [
        *("name", "precision", "recall", "f1", "average_precision", "support", "threshold")
    ]
