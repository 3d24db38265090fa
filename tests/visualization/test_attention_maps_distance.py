from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from keras_vit.visualization import mean_attention_distance
from tests.visualization.reference import CASES, attention_of, expected_of


def test_distance_of_a_case_worked_by_hand() -> None:
    # Two heads on a grid of 1 x 3, patches 4 high and 5 wide; a class token in front.
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 1:, 1:] = np.eye(3)  # each looks at itself
    attention[0, 1, 1:, 3] = 1.0  # all look at the last one: 10, 5 and 0 pixels away
    found = mean_attention_distance([attention], (1, 3), (4, 5))
    np.testing.assert_allclose(found, [[[0.0, 5.0]]])


def test_distance_counts_height_and_width_by_themselves() -> None:
    attention = np.full((1, 1, 6, 6), 1 / 6)
    tall = mean_attention_distance([attention], (2, 3), (10, 1))
    wide = mean_attention_distance([attention], (2, 3), (1, 10))
    assert tall < wide


def test_distance_does_not_raise_what_goes_to_patches_to_one() -> None:
    attention = np.full((1, 1, 3, 3), 1 / 3)  # a third goes to the class token
    np.testing.assert_allclose(mean_attention_distance([attention], (1, 2), (6, 6)), [[[2.0]]])


@pytest.mark.parametrize("name", CASES)
def test_distance_is_that_of_the_reference(name: str, recipe: ModuleType) -> None:
    attention, case = attention_of(name, recipe)
    found = mean_attention_distance(attention, (4, 4), (case["patch"], case["patch"]))
    # Measured: 4e-7, of distances up to 17 pixels.
    np.testing.assert_allclose(found, expected_of(f"{name}_mean_distance", recipe), atol=1e-5)


def test_distance_needs_a_token_for_each_patch() -> None:
    with pytest.raises(ValueError, match=r"a token for each of the 2 x 3 patches.*\(1, 1, 5, 5\)"):
        mean_attention_distance([np.zeros((1, 1, 5, 5))], (2, 3), (1, 1))
    with pytest.raises(ValueError, match=r"in at least one block\."):
        mean_attention_distance([], (2, 3), (1, 1))
