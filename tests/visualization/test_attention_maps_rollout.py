from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from keras_vit.visualization import gradient_rollout, rollout
from keras_vit.visualization.attention_maps import head_mean
from tests.visualization.reference import CASES, attention_of, expected_of


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


ATTENTION = [softmax(np.random.default_rng(seed).normal(size=(2, 3, 5, 5))) for seed in (1, 2)]


@pytest.mark.parametrize("name", CASES)
def test_rollout_is_that_of_the_reference(name: str, recipe: ModuleType) -> None:
    attention, _ = attention_of(name, recipe)
    found = rollout(attention)
    # Measured: 2e-16 and, against the float32 code of Chefer et al., 8.4e-8.
    np.testing.assert_allclose(found, expected_of(f"{name}_rollout", recipe), atol=1e-5)
    np.testing.assert_allclose(found[-1], expected_of(f"{name}_rollout_chefer", recipe), atol=1e-5)


def test_rollout_keeps_all_there_is() -> None:
    found = rollout(ATTENTION)
    assert found.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(found.sum(axis=-1), 1)


def test_gradient_rollout_of_a_case_worked_by_hand() -> None:
    # One image and head, two tokens. R1 = I + max(G1 A1, 0); R2 = R1 + max(G2 A2, 0) R1.
    first, second = np.full((1, 1, 2, 2), 0.5), np.array([[[[0.0, 1.0], [1.0, 0.0]]]])
    gradients = [np.array([[[[2.0, -2.0], [0.0, 4.0]]]]), np.array([[[[7.0, 1.0], [-1.0, 3.0]]]])]
    r1 = np.array([[2.0, 0.0], [0.0, 3.0]])
    r2 = r1 + np.array([[0.0, 1.0], [0.0, 0.0]]) @ r1
    np.testing.assert_allclose(gradient_rollout([first, second], gradients), [r2])


def test_gradient_rollout_counts_no_head_that_speaks_against_the_class() -> None:
    gradients = [-np.ones((2, 3, 5, 5))] * 2
    np.testing.assert_array_equal(gradient_rollout(ATTENTION, gradients), [np.eye(5)] * 2)


def test_head_mean_is_over_the_heads() -> None:
    gradients = np.zeros((2, 3, 5, 5))
    gradients[:, 1] = 6.0
    np.testing.assert_allclose(head_mean(ATTENTION[0], gradients), 2 * ATTENTION[0][:, 1])
