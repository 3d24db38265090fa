from __future__ import annotations

import numpy as np
import pytest
from cleanlab.filter import find_label_issues

from keras_vit.evaluation import label_errors


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_errors_are_those_of_cleanlab(seed: int, sharpness: float) -> None:
    generator = np.random.default_rng(seed)
    true = generator.integers(0, 6, 500)
    scores = sharpness * (np.eye(6)[true] + generator.normal(0, 0.5, (500, 6)))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    given = np.where(generator.random(500) < 0.2, generator.integers(0, 6, 500), true)
    expected = find_label_issues(
        given,
        probabilities,
        filter_by="confident_learning",
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )
    found, likely = label_errors(given, probabilities)
    assert found.tolist() == expected.tolist()
    assert len(found) > 20
    assert not np.any(likely == given[found])


def test_errors_worked_by_hand() -> None:
    # Thresholds: 0.55, the mean of 0.9, 0.8, 0.3 and 0.2; 0.7; the third class has no images.
    probabilities = np.array(
        [[0.9, 0.1, 0], [0.8, 0.2, 0], [0.3, 0.7, 0], [0.2, 0.2, 0.6], [0.3, 0.7, 0]]
    )
    found, likely = label_errors([0, 0, 0, 0, 1], probabilities)
    assert (found.tolist(), likely.tolist()) == ([2], [1])
