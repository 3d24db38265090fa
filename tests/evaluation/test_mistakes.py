from __future__ import annotations

import numpy as np

from keras_vit.evaluation.mistakes import surest_mistakes


def test_mistakes_are_ordered_by_how_sure_the_model_was() -> None:
    probabilities = [[0.6, 0.4], [0.1, 0.9], [0.7, 0.3], [0.2, 0.8], [0.9, 0.1]]
    assert surest_mistakes([1, 0, 1, 1, 0], probabilities, 9).tolist() == [1, 2, 0]
    assert surest_mistakes([1, 0, 1, 1, 0], probabilities, 2).tolist() == [1, 2]


def test_no_mistakes() -> None:
    assert len(surest_mistakes([0, 1], np.eye(2), 3)) == 0
