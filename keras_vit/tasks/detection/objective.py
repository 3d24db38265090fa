"""Loss of detection.

Letters: B batch; M objects; A cells; K classes.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models.detector import STRIDES
from keras_vit.tasks.detection.assignment import assign, in_crowds, overlaps
from keras_vit.tasks.objective import Objective

_CELLS_PER_OBJECT = 10
_BOX_WEIGHT = 2.5  # of the boxes' loss; that of the scores is 1


def cell_centers(size: tuple[int, int]) -> np.ndarray:
    """Returns the row and column of each cell's center for images of `size` (H, W): (A, 2)."""
    sizes = ((stride, [-(-side // stride) for side in size]) for stride in STRIDES)
    grids = [stride * (np.indices(sides).reshape(2, -1).T + 0.5) for stride, sides in sizes]
    return np.concatenate(grids).astype("float32")


class DetectionObjective(Objective):
    """Loss of the boxes and logits of all cells.

    The loss of an image is the cross-entropy of the scores with the target scores of `assign`, and
    the generalized IoU loss of the boxes of cells with objects, weighted by their target scores;
    both are divided by the sum of the target scores.

    Args:
        network: Model from `detector_logits`.
    """

    def __init__(self, network: keras.Model) -> None:
        super().__init__(network)
        self.centers = cell_centers(network.input_shape[1:3])

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        outputs = ops.cast(self.network(x, training=training), "float32")
        losses = cells_loss(outputs, ops.cast(y, "float32"), self.centers)
        return losses, losses


def cells_loss(outputs: Any, objects: Any, centers: Any, cells: int = _CELLS_PER_OBJECT) -> Any:
    """Returns the loss (B,) of boxes and logits (B, A, 4 + K) for objects (B, M, 6)."""
    boxes, logits = outputs[..., :4], outputs[..., 4:]
    centers = ops.convert_to_tensor(centers)
    outputs = ops.stop_gradient(outputs)
    true, target = assign(outputs[..., :4], ops.sigmoid(outputs[..., 4:]), centers, objects, cells)
    weight = ops.sum(target, axis=-1)  # (B, A)
    total = ops.maximum(ops.sum(weight, axis=-1), 1.0)
    cross_entropy = ops.softplus(logits) - target * logits  # (B, A, K)
    score_weights = 1 - in_crowds(centers, objects) * ops.cast(weight == 0, "float32")
    score_loss = ops.sum(ops.sum(cross_entropy, axis=-1) * score_weights, axis=-1)
    box_loss = ops.sum((1 - overlaps(boxes, true)[1]) * weight, axis=-1)
    return (score_loss + _BOX_WEIGHT * box_loss) / total
