from __future__ import annotations

import numpy as np
import pytest
from keras import ops
from PIL import Image
from scipy import ndimage

from keras_vit.layers.position_resizing import RESIZE_METHODS, offset_matrix, resize_table
from tests.helpers import assert_close, normal, numpy

# Grids that grow, shrink, do both, and keep one side.
GRIDS = [(5, 7), (8, 3), (2, 11), (5, 13), (1, 1), (10, 14)]


def test_resize_table_keeps_the_corners_worked_by_hand() -> None:
    """2 x 3 samples on 3 x 5: every second new one is an old one, the others are midway."""
    table = np.array([[0, 10, 20], [100, 110, 120]], "float32")[..., None]
    expected = [[0, 5, 10, 15, 20], [50, 55, 60, 65, 70], [100, 105, 110, 115, 120]]
    assert_close(resize_table(table, (3, 5))[..., 0], expected, 1e-5)


@pytest.mark.parametrize("method", ["bilinear_aligned", "bicubic_antialiased"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_resize_table_keeps_a_constant(grid: tuple[int, int], method: str) -> None:
    assert_close(
        resize_table(np.full((5, 7, 2), 0.7), grid, method), np.full((*grid, 2), 0.7), 1e-6
    )


@pytest.mark.parametrize("method", ["bilinear_aligned", "bicubic_antialiased"])
def test_resize_table_to_its_own_grid_changes_nothing(method: str) -> None:
    table = normal(5, 7, 3)
    assert_close(resize_table(table, (5, 7), method), table, 1e-6)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_resize_table_bilinear_equals_scipy(grid: tuple[int, int]) -> None:
    table = normal(5, 7, 3).astype("float64")
    rows, columns = (
        np.linspace(0, old - 1, new) for old, new in zip(table.shape[:2], grid, strict=True)
    )
    points = np.meshgrid(rows, columns, indexing="ij")
    expected = np.stack(
        [ndimage.map_coordinates(table[..., i], points, order=1) for i in range(3)], axis=-1
    )
    assert_close(resize_table(table, grid), expected, 2e-6)  # measured: 5e-7


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_resize_table_bicubic_equals_pil(grid: tuple[int, int]) -> None:
    table = normal(5, 7, 3)
    expected = np.stack(
        [
            Image.fromarray(table[..., i]).resize(grid[::-1], Image.Resampling.BICUBIC)
            for i in range(3)
        ],
        axis=-1,
    )
    assert_close(resize_table(table, grid, "bicubic_antialiased"), expected, 4e-6)  # measured: 2e-6


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "bicubic_aligned"])
def test_resize_table_continues_the_edge(method: str) -> None:
    """A table without change stays without change, up to its edge, when it grows or shrinks."""
    for grid in GRIDS:
        resized = resize_table(np.full((5, 7, 3), 2.5, "float32"), grid, method)
        assert_close(resized, np.full((*grid, 3), 2.5), 1e-5)  # measured: 2.4e-6
    same = normal(5, 7, 3)
    assert_close(resize_table(same, (5, 7), method), same, 1e-6)


def test_resize_table_worked_by_hand() -> None:
    """Two samples, 0 and 1, become four. Keys' kernel is 10/27 at 2/3 and -1.5/27 at 5/3."""
    column = np.array([[0.0], [1.0]], "float32")[..., None]
    results = {
        "bilinear": [0, 0.25, 0.75, 1],
        "bilinear_aligned": [0, 1 / 3, 2 / 3, 1],
        "bicubic_aligned": [0, 8.5 / 27, 18.5 / 27, 1],
    }
    for method, expected in results.items():
        assert_close(numpy(resize_table(column, (4, 1), method))[:, 0, 0], expected, 2e-7)
    middle = numpy(resize_table(column, (3, 1), "bicubic"))[1, 0, 0]
    assert middle == pytest.approx(0.5)  # both sides weigh alike


@pytest.mark.tensorflow
@pytest.mark.parametrize("method", RESIZE_METHODS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_resize_table_in_a_graph_of_unknown_size(grid: tuple[int, int], method: str) -> None:
    import tensorflow as tf

    table = normal(5, 7, 3)
    dynamic = tf.function(
        lambda h, w: resize_table(table, (h, w), method),
        input_signature=[tf.TensorSpec((), "int32")] * 2,
    )
    assert_close(dynamic(*grid), resize_table(table, grid, method), 1e-6)


def test_resize_table_is_always_float32() -> None:
    half = ops.cast(normal(4, 6, 5), "float16")
    assert numpy(resize_table(half, (2, 3))).dtype == np.float32


def test_resize_table_suggests_the_nearest_method() -> None:
    with pytest.raises(ValueError, match="Did you mean 'bilinear_aligned'"):
        resize_table(normal(4, 6, 5), (2, 3), "bilinear_align")


@pytest.mark.parametrize(("old", "new"), [(7, 11), (27, 47), (9, 5)])
def test_offset_matrix_is_symmetric_and_keeps_the_center(old: int, new: int) -> None:
    matrix = offset_matrix(old, new)
    assert_close(matrix.sum(axis=1), np.ones(new), 1e-6)
    assert_close(matrix[::-1, ::-1], matrix, 1e-6)
    assert matrix[new // 2].tolist() == np.eye(old)[old // 2].tolist()


def test_offset_matrix_to_the_same_number_changes_nothing() -> None:
    assert offset_matrix(5, 5).tolist() == np.eye(5).tolist()
