from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from keras_vit.layers.token_reduction import Matching, match, merge, take_tokens
from tests.helpers import assert_close, normal, numpy


def matched_slowly(metric: np.ndarray, pairs: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Section 3 of the paper for one image: who is left, in order, and who goes into whom."""
    # 1. Partition the tokens into two sets of roughly equal size.
    a, b = range(0, len(metric), 2), range(1, len(metric), 2)

    def cosine(i: int, j: int) -> float:
        return metric[i] @ metric[j] / np.linalg.norm(metric[i]) / np.linalg.norm(metric[j])

    # 2. Draw one edge from each token in a to its most similar token in b.
    edges = [max((cosine(i, j), i, j) for j in b) for i in a]
    # 3. Keep the r most similar edges.
    edges = sorted(edges, reverse=True)[:pairs]
    gone = [i for _, i, _ in edges]
    return [*(i for i in a if i not in gone), *b], [(i, j) for _, i, j in edges]


def merged_slowly(
    tokens: np.ndarray, sizes: np.ndarray, left: list[int], edges: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """4. Merge tokens that are still connected, by their mean weighted by size."""
    groups = [[j, *(i for i, partner in edges if partner == j)] for j in left]
    means = [np.average(tokens[g], axis=0, weights=sizes[g]) for g in groups]
    return np.array(means), np.array([sizes[g].sum() for g in groups])


@pytest.mark.parametrize(
    ("t", "r", "p"), [(13, 5, 0), (14, 7, 0), (13, 1, 2), (15, 6, 3), (2, 1, 0), (3, 1, 1)]
)
def test_matching_equals_the_paper_step_by_step(t: int, r: int, p: int) -> None:
    metric, tokens = normal(3, t, 5), normal(3, t, 7, seed=4)
    sizes = np.random.default_rng(6).integers(1, 5, (3, t)).astype("float32")
    pairs = match(ops.convert_to_tensor(metric), r, p)
    found, counts = merge(ops.convert_to_tensor(tokens), ops.convert_to_tensor(sizes), pairs)
    assert tuple(found.shape) == (3, t - r, 7)
    for i in range(3):
        left, edges = matched_slowly(metric[i][p:], r)
        left, edges = [*range(p), *(p + x for x in left)], [(p + x, p + y) for x, y in edges]
        assert numpy(pairs.remaining)[i].tolist() == left
        assert numpy(pairs.merged)[i].tolist() == [x for x, _ in edges]
        assert [left[x] for x in numpy(pairs.targets)[i]] == [y for _, y in edges]
        means, sums = merged_slowly(tokens[i], sizes[i], left, edges)
        assert_close(found[i], means, 5e-7)  # measured: 1.2e-7
        assert_close(counts[i], sums, 0.0)


def test_several_tokens_may_share_a_partner() -> None:
    tokens = ops.convert_to_tensor([[[1.0], [10.0], [2.0], [20.0], [3.0]]])
    sizes = ops.convert_to_tensor([[1.0, 1.0, 1.0, 2.0, 1.0]])
    pairs = Matching(*(ops.convert_to_tensor([x]) for x in ([2, 1, 3], [0, 4], [2, 2])))
    found, counts = merge(tokens, sizes, pairs)
    assert numpy(found).ravel().tolist() == [2, 10, 11]  # (1 + 2 * 20 + 3) / 4
    assert numpy(counts).ravel().tolist() == [1, 1, 4]


def test_length_does_not_count_in_a_match() -> None:
    metric = ops.convert_to_tensor([[[1.0, 0.0], [0.1, 0.0], [0.0, 3.0], [9.0, 9.0]]])
    pairs = match(metric, 2)
    assert numpy(pairs.merged).tolist() == [[0, 2]]
    assert numpy(pairs.remaining).tolist() == [[1, 3]]
    assert numpy(pairs.targets).tolist() == [[0, 1]]


def test_take_tokens_of_each_example() -> None:
    tokens = normal(3, 5, 2)
    numbers = np.array([[4, 0], [1, 1], [2, 3]], "int32")
    taken = take_tokens(ops.convert_to_tensor(tokens), ops.convert_to_tensor(numbers))
    np.testing.assert_array_equal(
        numpy(taken), [z[i] for z, i in zip(tokens, numbers, strict=True)]
    )
