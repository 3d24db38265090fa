from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from keras_vit import checks


def test_nearest_suggests_what_was_meant() -> None:
    assert checks.nearest("vitb61", ["ViTL16", "ViTB16"]) == " Did you mean 'ViTB16'?"
    assert checks.nearest("resnet", ["ViTL16", "ViTB16"]) == ""


def test_one_of_names_options_and_the_nearest() -> None:
    checks.one_of("gelu", "exact", ("tanh", "exact"))
    with pytest.raises(
        ValueError,
        match=r"`gelu` must be one of 'tanh', 'exact'. Did you mean 'exact'\? "
        "Received: gelu='exakt'",
    ):
        checks.one_of("gelu", "exakt", ("tanh", "exact"))


@pytest.mark.parametrize("value", [3, np.int64(3)])
def test_positive_int_returns_an_int(value: object) -> None:
    assert type(checks.positive_int("heads", value)) is int


@pytest.mark.parametrize("value", [0, -2, 1.5, "3", None, True])
def test_positive_int_refuses_anything_else(value: object) -> None:
    with pytest.raises(ValueError, match=r"`heads` must be a positive integer\. Received: heads="):
        checks.positive_int("heads", value)


def test_rate_takes_zero_but_not_one() -> None:
    assert checks.rate("dropout_rate", 0) == 0.0
    for value in (1, 1.5, -0.1, "0.1", float("nan")):
        with pytest.raises(ValueError, match=r"`dropout_rate` must be a number in \[0, 1\)"):
            checks.rate("dropout_rate", value)


@pytest.mark.parametrize(("value", "pair"), [(7, (7, 7)), ((5, 3), (5, 3)), ([5, 3], (5, 3))])
def test_size_pair_makes_a_pair(value: object, pair: tuple[int, int]) -> None:
    assert checks.size_pair("patch_size", value) == pair


@pytest.mark.parametrize(
    ("value", "message"),
    [((1, 2, 3), r"a pair \(height, width\)"), ((0, 2), "a positive integer")],
)
def test_size_pair_refuses_anything_else(value: object, message: str) -> None:
    check: Callable[[str, object], tuple[int, int]] = checks.size_pair
    with pytest.raises(ValueError, match=message):
        check("patch_size", value)
