"""Assignment beside a reference in NumPy that takes one object and one cell after another."""

from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.detection.assignment import assign, in_crowds, overlaps
from keras_vit.tasks.detection.objective import cell_centers
from tests.helpers import numpy

CENTERS = cell_centers((32, 64))


def drawn_boxes(generator: np.random.Generator, *shape: int) -> np.ndarray:
    begin = generator.uniform([0, 0], [24, 48], (*shape, 2))
    return np.concatenate([begin, begin + generator.uniform(6, 30, (*shape, 2))], -1).astype("f")


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    objects = np.full((2, 5, 6), -1, "f")
    for image, count in enumerate((5, 3)):
        objects[image, :count, :4] = drawn_boxes(generator, count)
        objects[image, :count, 4] = generator.integers(0, 3, count)
        objects[image, :count, 5] = np.arange(count) == 1  # a crowd
    boxes = drawn_boxes(generator, 2, len(CENTERS))
    return boxes, generator.uniform(size=(2, len(CENTERS), 3)).astype("f"), objects


def both(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """IoU and generalized IoU of two boxes."""
    area = lambda y0, x0, y1, x1: max(y1 - y0, 0) * max(x1 - x0, 0)  # noqa: E731
    common = area(max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    union = area(*a) + area(*b) - common
    hull = area(min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))
    return common / union, common / union - (hull - union) / hull


def reference(
    boxes: np.ndarray, scores: np.ndarray, objects: np.ndarray, cells: int
) -> tuple[np.ndarray, np.ndarray]:
    true, target = np.zeros_like(boxes), np.zeros_like(scores)
    for image, rows in enumerate(objects):
        chosen: dict[int, list[tuple[float, float, int]]] = {}
        for number, row in enumerate(rows):
            if row[4] < 0 or row[5] > 0:
                continue
            fits = []
            for cell, (y, x) in enumerate(CENTERS):
                if row[0] < y < row[2] and row[1] < x < row[3]:
                    iou = both(row[:4], boxes[image, cell])[0]
                    fits.append((scores[image, cell, int(row[4])] ** 0.5 * iou**6, iou, cell))
            for fit, iou, cell in sorted(fits, reverse=True)[:cells]:
                chosen.setdefault(cell, []).append((iou, fit, number))
        kept = {cell: max(candidates) for cell, candidates in chosen.items()}
        for cell, (_, fit, number) in kept.items():
            of_object = [other for other in kept.values() if other[2] == number]
            most, iou = max(o[1] for o in of_object), max(o[0] for o in of_object)
            true[image, cell] = rows[number, :4]
            target[image, cell, int(rows[number, 4])] = fit / most * iou if most > 0 else 0
    return true, target


@pytest.mark.parametrize("cells", [1, 4, 10])
@pytest.mark.parametrize("seed", range(4))
def test_assignment_equals_the_reference(cells: int, seed: int) -> None:
    boxes, scores, objects = drawn(seed)
    true, target = map(numpy, assign(boxes, scores, CENTERS, objects, cells))
    expected, expected_target = reference(boxes, scores, objects, cells)
    assert (expected_target > 0.1).any()
    # Cells with almost no overlap may be chosen or not.
    np.testing.assert_allclose(target, expected_target, atol=1e-4)  # measured: 1e-6
    found = target.max(axis=-1) > 1e-3
    np.testing.assert_array_equal(true[found], expected[found])


def test_overlaps_equal_the_reference() -> None:
    generator = np.random.default_rng(9)
    first, second = drawn_boxes(generator, 50), drawn_boxes(generator, 50)
    found = np.stack([numpy(each) for each in overlaps(first, second)], axis=1)
    expected = [both(a, b) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)  # measured: 4e-7


def test_cells_in_crowds_are_those_whose_center_is_inside() -> None:
    _, _, objects = drawn(0)
    found = numpy(in_crowds(CENTERS, objects))
    for image, cell in np.ndindex(found.shape):
        y0, x0, y1, x1 = objects[image, 1, :4]
        y, x = CENTERS[cell]
        assert found[image, cell] == (y0 < y < y1 and x0 < x < x1)
