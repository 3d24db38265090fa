"""Loss and metrics of segmentation.

Letters: B batch; H, W height and width; h, w of the network's output; K classes.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.data.masks import IGNORED
from keras_vit.tasks.objective import Objective


class MeanIoU(keras.metrics.Metric):
    """Mean intersection over union of the classes that occur, from counts of pixels.

    `keras.metrics.MeanIoU` takes the classes of all pixels, which replicas would have to exchange.
    """

    def __init__(self, classes: int, name: str = "mean_iou") -> None:
        super().__init__(name=name)
        self.counts = self.add_weight(shape=(3, classes), initializer="zeros", name="counts")

    def update_state(self, counts: Any, sample_weight: Any = None) -> None:
        """Adds pixels (B, 3, K): correct, of the class, and predicted as the class."""
        weight = ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1, 1))
        self.counts.assign_add(ops.sum(counts * weight, axis=0))

    def result(self) -> Any:
        correct, true, predicted = ops.unstack(ops.convert_to_tensor(self.counts), 3)
        occurs = ops.cast(true > 0, "float32")
        ious = occurs * correct / ops.maximum(true + predicted - correct, 1.0)
        return ops.sum(ious) / ops.maximum(ops.sum(occurs), 1.0)


class SegmentationObjective(Objective):
    """Mean cross-entropy of the pixels that have a class, and mean Dice loss of the classes.

    Args:
        network: Network to logits (B, h, w, K).
        class_weights: Weights of the classes' pixels in the cross-entropy (K,), or None.
        dice: Whether the Dice loss of the classes that occur in an image is added.

    Reference: https://arxiv.org/abs/1606.04797 (Dice)
    """

    def __init__(
        self,
        network: keras.Model,
        class_weights: np.ndarray | None = None,
        *,
        dice: bool = False,
    ) -> None:
        super().__init__(network)
        self.class_weights = class_weights
        self.dice = dice
        self.iou = MeanIoU(network.output_shape[-1])
        self.accuracy = keras.metrics.Mean("pixel_accuracy")

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        logits = ops.cast(self.network(x, training=training), "float32")  # (B, h, w, K)
        logits = ops.image.resize(  # (B, H, W, K)
            logits, y.shape[1:3], "bilinear", data_format="channels_last"
        )
        valid, classes = ops.cast(y != IGNORED, "float32"), logits.shape[-1]
        labels = ops.where(y == IGNORED, 0, ops.cast(y, "int32"))
        losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        weight = valid
        if self.class_weights is not None:
            weight = valid * ops.take(ops.convert_to_tensor(self.class_weights), labels)
        total = ops.maximum(ops.sum(weight, (1, 2)), 1.0)
        true = ops.one_hot(labels, classes) * valid[..., None]
        predicted = ops.one_hot(ops.argmax(logits, axis=-1), classes) * valid[..., None]
        counts = [ops.sum(each, (1, 2)) for each in (true * predicted, true, predicted)]
        loss = ops.sum(losses * weight, (1, 2)) / total
        if self.dice:
            loss += _dice_loss(true, ops.softmax(logits) * valid[..., None])
        return loss, ops.stack(counts, axis=1)

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        correct, true = ops.sum(outputs[:, 0], -1), ops.sum(outputs[:, 1], -1)
        self.iou.update_state(outputs, weight)
        weight = ops.where(true > 0, weight, 0.0)  # images of ignored pixels have no accuracy
        self.accuracy.update_state(correct / ops.maximum(true, 1.0), weight)

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        return [self.iou, self.accuracy]


def _dice_loss(true: Any, predicted: Any) -> Any:
    """Computes the Dice loss (B,), the mean of the classes that occur, of arrays (B, H, W, K)."""
    intersection = ops.sum(predicted * true, (1, 2))  # (B, K)
    true, predicted = ops.sum(true, (1, 2)), ops.sum(predicted, (1, 2))
    occurs = ops.cast(true > 0, "float32")
    scores = occurs * 2 * intersection / ops.maximum(true + predicted, 1.0)
    number = ops.sum(occurs, -1)
    return (number - ops.sum(scores, -1)) / ops.maximum(number, 1.0)
