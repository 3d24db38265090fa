from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from keras_vit.layers.matching import Matching, match, sum_pairs, take_tokens
from tests.helpers import assert_close, normal, numpy


def matched_slowly(metric: np.ndarray, pairs: int) -> tuple[list[int], list[int], list[int]]:
    """Section 3 of the paper, step by step, for one image."""
    # 1. Partition the tokens into two sets of roughly equal size.
    a, b = list(range(0, len(metric), 2)), list(range(1, len(metric), 2))

    def cosine(i: int, j: int) -> float:
        return metric[i] @ metric[j] / np.linalg.norm(metric[i]) / np.linalg.norm(metric[j])

    # 2. Draw one edge from each token in a to its most similar token in b.
    edges = []
    for x, i in enumerate(a):
        likeness = [cosine(i, j) for j in b]
        edges.append((max(likeness), x, int(np.argmax(likeness))))
    # 3. Keep the r most similar edges.
    edges.sort(reverse=True)
    merged = [x for _, x, _ in edges[:pairs]]
    kept = [x for x in range(len(a)) if x not in merged]
    return kept, merged, [y for _, _, y in edges[:pairs]]


def summed_slowly(tokens: np.ndarray, kept: list, merged: list, partners: list) -> np.ndarray:
    a, b = tokens[::2], tokens[1::2].copy()
    for x, y in zip(merged, partners, strict=True):
        b[y] += a[x]
    return np.concatenate([a[kept], b])


@pytest.mark.parametrize(("n", "r"), [(13, 5), (14, 7), (13, 1), (2, 1)])
def test_match_and_sum_equal_the_paper_step_by_step(n: int, r: int) -> None:
    metric, tokens = normal(3, n, 5), normal(3, n, 7, seed=4)
    pairs = match(ops.convert_to_tensor(metric), r)
    found = [numpy(x) for x in (pairs.kept, pairs.merged, pairs.partners)]
    sums = numpy(sum_pairs(ops.convert_to_tensor(tokens), pairs))
    assert sums.shape == (3, n - r, 7)
    for i in range(3):
        expected = matched_slowly(metric[i], r)
        assert [x[i].tolist() for x in found] == list(expected)
        assert_close(sums[i], summed_slowly(tokens[i], *expected), 1e-6)  # measured: 2.4e-7


def test_several_tokens_may_share_a_partner() -> None:
    tokens = ops.convert_to_tensor([[[1.0], [10.0], [2.0], [20.0], [3.0]]])  # a: 1, 2, 3
    pairs = Matching(*(ops.convert_to_tensor([x]) for x in ([1], [0, 2], [1, 1])))
    assert numpy(sum_pairs(tokens, pairs)).ravel().tolist() == [2, 10, 24]


def test_length_does_not_count_in_a_match() -> None:
    metric = ops.convert_to_tensor([[[1.0, 0.0], [0.1, 0.0], [0.0, 3.0], [9.0, 9.0]]])
    pairs = match(metric, 2)
    assert numpy(pairs.merged).tolist() == [[0, 1]]
    assert numpy(pairs.partners).tolist() == [[0, 1]]


def test_take_tokens_of_each_example() -> None:
    tokens = normal(3, 5, 2)
    numbers = np.array([[4, 0], [1, 1], [2, 3]], "int32")
    taken = take_tokens(ops.convert_to_tensor(tokens), ops.convert_to_tensor(numbers))
    np.testing.assert_array_equal(
        numpy(taken), [z[i] for z, i in zip(tokens, numbers, strict=True)]
    )
