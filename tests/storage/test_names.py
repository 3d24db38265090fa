from __future__ import annotations

import os
import pickle

import numpy as np
import pyarrow
import pytest

from keras_vit.storage.names import Names, argsort, index_finder, repeated, take

TEXTS = ("a/1.jpg", "a/2.jpg", "b/ü.jpg", "c.png")


@pytest.fixture
def names() -> Names:
    return Names(pyarrow.array(TEXTS))


def test_names_are_used_like_a_tuple(names: Names) -> None:
    assert names == TEXTS
    assert names != TEXTS[:-1]
    assert (len(names), names[2], names[-1], names[1:3]) == (4, TEXTS[2], TEXTS[3], TEXTS[1:3])
    assert list(names) == list(TEXTS)
    assert "c.png" in names


def test_many_names_are_read_in_parts() -> None:
    texts = tuple(f"{index:06d}" for index in range(70_000))
    assert Names(pyarrow.array(texts)) == texts


@pytest.mark.parametrize("indices", [[3, 1], [], np.array([0, 0, 2])])
def test_subset_is_that_of_a_tuple(names: Names, indices: list[int]) -> None:
    expected = tuple(TEXTS[i] for i in indices)
    assert take(names, indices) == expected == take(TEXTS, indices)


def test_repeated_names_are_found(names: Names) -> None:
    for some in (names, TEXTS):
        assert repeated(some) == []
        assert repeated(take(some, [1, 3, 1])) == ["a/2.jpg"]


def test_pickled_names_are_without_the_others() -> None:
    names = Names(pyarrow.array([f"{index:06d}" for index in range(10_000)]))
    content = pickle.dumps(take(names, [7, 3]))
    assert pickle.loads(content) == ("000007", "000003")  # noqa: S301
    assert len(content) < 2_000


def test_argsort_sorts_the_names(names: Names) -> None:
    for some in (names, TEXTS):
        assert argsort(take(some, [3, 0, 2])).tolist() == [1, 2, 0]


def test_indices_of_names_are_found(names: Names) -> None:
    wanted = ["c.png", "a/0.jpg", "a/2.jpg", os.fsdecode(b"\xff"), "z"]
    for some in (names, TEXTS):
        find = index_finder(take(some, [3, 1]))
        assert find(wanted) == [0, -1, 1, -1, -1]
        assert find([os.fsencode(name) for name in wanted]) == [0, -1, 1, -1, -1]
        assert find(["a/1.jpg"]) == [-1]
        assert find([]) == []
