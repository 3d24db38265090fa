from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from keras_vit.layers.position_embedding import LearnedRotary, Relative, Rotary, sincos_2d
from tests import reference
from tests.helpers import assert_close, normal, numpy


def test_sincos_2d_worked_by_hand() -> None:
    """D = 8: two frequencies, 1 and 1/10000; sin and cos of the column, then of the row."""
    table = sincos_2d((3, 4), 8)
    assert table.dtype == np.float32
    assert_close(table[0, 0], [0, 0, 1, 1, 0, 0, 1, 1], 0.0)
    at_1_3 = [np.sin(3), np.sin(3e-4), np.cos(3), np.cos(3e-4)]
    at_1_3 += [np.sin(1), np.sin(1e-4), np.cos(1), np.cos(1e-4)]
    assert_close(table[1, 3], at_1_3, 1e-7)


def test_sincos_2d_equals_the_equations() -> None:
    assert_close(sincos_2d((5, 7), 12), reference.position_table("sincos_2d", (5, 7), {}, 12), 1e-7)


def test_sincos_2d_refuses_a_width_that_is_no_multiple_of_4() -> None:
    with pytest.raises(ValueError, match=r"multiple of 4 .* Received: hidden_size=6"):
        sincos_2d((2, 3), 6)


def test_sincos_2d_makes_no_table_of_any_size() -> None:
    with pytest.raises(
        ValueError, match=r"`grid` must be small enough for .* 16,777,216 .* grid=\(2049, 2048\)"
    ):
        sincos_2d((2049, 2048), 4)


def _turned(kind: Rotary, x: np.ndarray, grid: tuple[int, int], prefix: int = 0) -> np.ndarray:
    inputs = kind.attention_inputs(grid, prefix, x.shape[-1])
    return numpy(kind.rotate(ops.convert_to_tensor(x), inputs))


@pytest.mark.parametrize("kind", [Rotary(), LearnedRotary()], ids=lambda kind: kind.name)
def test_rotation_keeps_lengths_and_prefix_tokens(kind: Rotary) -> None:
    x = normal(2, 3, 2 + 15, 8)  # (B, K, T, d)
    turned = _turned(kind, x, (3, 5), 2)
    assert_close(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), 1e-5)
    assert (turned[:, :, :2] == x[:, :, :2]).all()
    assert abs(turned - x)[:, :, 2:].max() > 0.1


@pytest.mark.parametrize("kind", [Rotary(), LearnedRotary()], ids=lambda kind: kind.name)
def test_rotated_products_depend_on_the_offset_alone(kind: Rotary) -> None:
    q, k = (np.tile(normal(1, 1, 1, 8), (1, 1, 15, 1)) for _ in range(2))
    q, k = _turned(kind, q, (3, 5))[0, 0], _turned(kind, k, (3, 5))[0, 0]
    scores = (q @ k.T).reshape(3, 5, 3, 5)
    assert_close(scores[:2, :4, :2, :4], scores[1:, 1:, 1:, 1:], 1e-5)


def test_rotary_angles_worked_by_hand() -> None:
    """Head of 8: periods 1 and 10; the only row is at 0, columns are at -1/2 and 1/2."""
    found = numpy(Rotary().attention_inputs((1, 2), 1, 8))[0]
    angles = np.arccos(np.clip(found[:, :8], -1, 1))
    assert_close(angles[0], np.zeros(8), 1e-6)
    assert_close(angles[1], [0, 0, np.pi, np.pi / 10, 0, 0, np.pi, np.pi / 10], 1e-3)
    assert_close(found[1, 8:], -found[2, 8:], 1e-6)


def test_learned_rotary_turns_neighboring_channels() -> None:
    """Two patches in a row, with 16 cells in a grid: angles 0 and 8 for the first frequency."""
    found = numpy(LearnedRotary().attention_inputs((1, 2), 0, 4))[0]
    assert_close(found[1], [1, 1, np.cos(8), np.cos(8), 0, 0, np.sin(8), np.sin(8)], 1e-5)
    x = np.array([1, 2, 3, 4], "float32").reshape(1, 1, 1, 4)
    turned = _turned(LearnedRotary(), np.tile(x, (1, 1, 2, 1)), (1, 2))[0, 0]
    c, s = np.cos(8), np.sin(8)
    assert_close(turned, [[1, 2, 3, 4], [1, 2, 3 * c - 4 * s, 4 * c + 3 * s]], 1e-5)


def test_relative_index_worked_by_hand() -> None:
    """1 x 2 patches: offsets -1, 0 and 1, then the three kinds of pairs with the class token."""
    index = numpy(Relative().attention_inputs((1, 2), 1, 8))
    assert index.tolist() == [[[5, 3, 3], [4, 1, 0], [4, 2, 1]]]
    table = np.arange(12).reshape(6, 2)
    logits = numpy(Relative().logits({"relative_position": table}, index))
    assert logits.shape == (1, 2, 3, 3)
    assert logits[0, 1].tolist() == [[11, 7, 7], [9, 3, 1], [9, 5, 3]]


def test_relative_table_is_resized_but_for_its_last_rows() -> None:
    table = normal(5 * 9 + 3, 2).astype("float32")
    resized = Relative().resize("relative_position", table, ((3, 5), (4, 5)), "bilinear")
    assert resized.shape == (7 * 9 + 3, 2)
    assert (resized[-3:] == table[-3:]).all()
    middle = resized[:-3].reshape(7, 9, 2)[3]
    assert_close(middle, table[:-3].reshape(5, 9, 2)[2], 1e-6)  # rows of offset 0
