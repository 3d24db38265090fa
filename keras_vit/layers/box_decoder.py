"""Boxes from distances to their edges.

Letters: B batch; h, w rows and columns of cells.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="keras_vit")
class BoxDecoder(BaseLayer):
    """Decoder of boxes from the distances between the center of each cell and the box's edges.

    Args:
        stride: Height and width of a cell, in pixels.

    Call arguments:
        inputs: Tensor of shape (B, h, w, 4); its softplus is the distance to the top, left, bottom
            and right edge, in cells.

    Returns:
        Boxes (B, h * w, 4): first row, first column, last row and last column, in pixels, float32.

    Examples:
        >>> boxes = BoxDecoder(8)(np.full((1, 2, 2, 4), 50.0, "float32"))
        >>> np.asarray(boxes)[0, 1].tolist()
        [-396.0, -388.0, 404.0, 412.0]

    Reference: https://arxiv.org/abs/1904.01355
    """

    def __init__(self, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stride = arguments.positive_int("stride", stride)

    def call(self, inputs: Any) -> Any:
        grid = height, width = inputs.shape[1:3]
        distances = self.stride * ops.softplus(ops.cast(inputs, "float32"))
        rows, columns = (self.stride * (ops.arange(side, dtype="float32") + 0.5) for side in grid)
        centers = ops.stack(ops.meshgrid(rows, columns, indexing="ij"), axis=-1)
        boxes = [centers - distances[..., :2], centers + distances[..., 2:]]
        return ops.reshape(ops.concatenate(boxes, axis=-1), (-1, height * width, 4))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], input_shape[1] * input_shape[2], 4)  # type: ignore[operator]
