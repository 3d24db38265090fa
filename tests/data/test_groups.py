from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from keras_vit.data import Examples, split

Noise = Callable[..., Examples]


def distinct(examples: Examples) -> dict[str, str]:
    return {name: f"digest of {name}" for name in examples.names}


def test_groups_contents_and_twins_stay_together(noise: Noise) -> None:
    patients = ("a", "a", "a", "b", "b", "c", "c", "d", "d", "d", "e", "", "", "f")
    examples = noise(14, targets=np.arange(14) % 2, columns={"patient": patients})
    digests = distinct(examples) | {examples.names[4]: "same", examples.names[5]: "same"}
    twins = [(examples.names[0], examples.names[10])]
    together = [{0, 1, 2, 10}, {3, 4, 5, 6}, {7, 8, 9}]
    held_out = []
    for fold in range(3):
        parts = split(examples, digests, twins, group_by="patient", folds=3, fold=fold)
        train, validation = (set(part.tolist()) for part in parts)
        assert not train & validation
        assert all(group <= train or group <= validation for group in together)
        held_out.append(validation)
    assert sorted(i for part in held_out for i in part) == list(range(14))
    train, validation = split(examples, digests, group_by="patient", validation_fraction=0.25)
    assert not {patients[i] for i in train if patients[i]} & {patients[i] for i in validation}
    assert 1 <= len(validation) <= 6


def test_groups_that_occur_in_the_test_set_are_not_trained_on(noise: Noise) -> None:
    examples = noise(
        8,
        targets=[0, 1] * 4,
        splits=("train",) * 4 + ("validation",) * 2 + ("test",) * 2,
        columns={"camera": tuple("abcdefga")},
    )
    train, validation = split(examples, distinct(examples), group_by="camera")
    assert (train.tolist(), validation.tolist()) == ([1, 2, 3], [4, 5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_by": "patent"}, "`group_by` must be a column .*'patent'; columns: patient"),
        ({"folds": 5}, "`folds`, or else .* at most the number of groups .* 4 groups"),
        ({"validation_fraction": 0.2}, "1 / `validation_fraction`, .*folds=5, .* 4 groups"),
        ({"folds": 5, "group_by": None}, "largest class. .*folds=5, .* 8 groups, 4 images in a "),
        ({"folds": 1}, "`folds`, .*must be 2 or more, .*folds=1"),
        ({"folds": 3, "fold": 3}, "`folds`, .*must be 2 or more, .*fold=3"),
    ],
)
def test_groups_and_folds_that_are_not_there(
    noise: Noise, options: dict[str, Any], message: str
) -> None:
    examples = noise(8, targets=[0, 1] * 4, columns={"patient": tuple("aabbccdd")})
    with pytest.raises(ValueError, match=message):
        split(examples, distinct(examples), **{"group_by": "patient"} | options)


def test_fraction_of_groups_is_that_of_a_fold(
    noise: Noise, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = noise(24, targets=[0, 1] * 12, columns={"patient": tuple("abcdefghijkl" * 2)})
    for fraction, note in (
        (0.2, ""),
        (0.4, "Note: groups are held out as one of 2 folds: 0.500 of the images.\n"),
    ):
        split(examples, None, group_by="patient", validation_fraction=fraction)
        assert capsys.readouterr().out == note
    with pytest.raises(
        ValueError, match=r"`validation_fraction` must be at most 0\.5 with .*=0\.8"
    ):
        split(examples, None, group_by="patient", validation_fraction=0.8)
