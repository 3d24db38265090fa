"""Assignment of objects to the cells that predict them.

Letters: B batch; M objects; A cells; K classes. Boxes are first row, first column, last row and
last column, in pixels.
"""

from __future__ import annotations

from typing import Any

from keras import ops

_MIN_AREA = 1e-9  # pixels, against division by zero
_FLOOR = 1e-30  # product of powers of a score and an IoU
# Exponents of score and IoU; https://arxiv.org/abs/2108.07755 has 1 and 6.
_SCORE_POWER, _IOU_POWER = 0.5, 6.0


def overlaps(first: Any, second: Any) -> tuple[Any, Any]:
    """Returns the IoU and the generalized IoU of boxes (..., 4).

    Reference: https://arxiv.org/abs/1902.09630
    """
    begin = ops.maximum(first[..., :2], second[..., :2])
    end = ops.minimum(first[..., 2:], second[..., 2:])
    areas = [ops.prod(ops.maximum(box[..., 2:] - box[..., :2], 0), -1) for box in (first, second)]
    intersection = ops.prod(ops.maximum(end - begin, 0), -1)
    union = ops.maximum(areas[0] + areas[1] - intersection, _MIN_AREA)
    begin = ops.minimum(first[..., :2], second[..., :2])
    end = ops.maximum(first[..., 2:], second[..., 2:])
    hull = ops.maximum(ops.prod(end - begin, -1), _MIN_AREA)
    return intersection / union, intersection / union - (hull - union) / hull


def assign(boxes: Any, scores: Any, centers: Any, objects: Any, cells: int) -> tuple[Any, Any]:
    """Assigns each object to the cells whose predictions fit it best.

    A cell fits an object if its center lies in the object's box, by the product of the predicted
    score of the object's class and of the IoU of the boxes, with exponents. A cell that fits
    several objects predicts the one with the highest IoU.

    Args:
        boxes: Predicted boxes (B, A, 4).
        scores: Predicted scores in [0, 1], (B, A, K).
        centers: Row and column of each cell's center (A, 2).
        objects: Objects as in `data.boxes.Boxes`, (B, M, 6).
        cells: Number of cells for each object, at most.

    Returns:
        Boxes of the assigned objects (B, A, 4); and target scores of the classes, (B, A, K): for
        each object, up to its highest IoU with any of its cells; 0 for cells without an object.

    Reference: https://arxiv.org/abs/2108.07755
    """
    true = objects[..., :4]  # (B, M, 4)
    labels = ops.cast(ops.maximum(objects[..., 4], 0), "int32")
    counts = ops.cast((objects[..., 4] >= 0) & (objects[..., 5] < 1), "float32")  # (B, M)
    is_inside = ops.cast(_inside(centers, true), "float32") * counts[..., None]  # (B, M, A)
    iou, _ = overlaps(true[:, :, None], boxes[:, None])  # (B, M, A)
    classes = ops.one_hot(labels, scores.shape[-1])  # (B, M, K)
    score = ops.matmul(classes, ops.transpose(scores, (0, 2, 1)))  # (B, M, A)
    fit = is_inside * score**_SCORE_POWER * iou**_IOU_POWER
    lowest_fit = ops.top_k(fit, min(cells, fit.shape[-1]))[0][..., -1:]
    chosen = ops.cast((fit >= lowest_fit) & (fit > 0), "float32")
    best = ops.one_hot(ops.argmax(iou * chosen + chosen, axis=1), fit.shape[1], axis=1)
    chosen = chosen * best  # one object for each cell
    fit = fit * chosen
    highest = ops.max(iou * chosen, axis=-1, keepdims=True)
    target = fit / ops.maximum(ops.max(fit, axis=-1, keepdims=True), _FLOOR) * highest  # (B, M, A)
    by_cell = ops.transpose(chosen, (0, 2, 1))  # (B, A, M)
    target_scores = ops.matmul(ops.transpose(target, (0, 2, 1)), classes)
    return ops.matmul(by_cell, true), target_scores


def in_crowds(centers: Any, objects: Any) -> Any:
    """Returns 1 for the cells (B, A) whose center lies in a crowd, else 0."""
    crowd = (objects[..., 4] >= 0) & (objects[..., 5] > 0)
    inside = _inside(centers, objects) & crowd[..., None]  # (B, M, A)
    return ops.cast(ops.any(inside, axis=1), "float32")


def _inside(centers: Any, boxes: Any) -> Any:
    """Returns whether each center (A, 2) lies in each of the boxes (B, M, 4 or more), (B, M, A)."""
    center, box = centers[None, None], boxes[:, :, None]
    return ops.all((center > box[..., :2]) & (center < box[..., 2:4]), axis=-1)
