"""Loss and metrics for training a classifier.

Letters: B batch; K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments
from keras_vit.tasks.objective import Objective


class AveragePrecision(keras.metrics.AUC):
    """Computes the mean average precision of the labels that occur."""

    def result(self) -> Any:
        occurring = ops.count_nonzero(self.true_positives[0] + self.false_negatives[0])
        # Labels without images add 0 to the mean of all labels.
        return super().result() * self.num_labels / ops.cast(ops.maximum(occurring, 1), "float32")


class ClassificationObjective(Objective):
    """Training objective of a classifier, with cross-entropy as loss and accuracy as metric."""

    def __init__(
        self,
        network: keras.Model,
        *,
        loss: str = "softmax",
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        logit_offsets: Sequence[float] | None = None,
        focal_gamma: float = 0.0,
    ) -> None:
        super().__init__(network)
        arguments.one_of("loss", loss, ("softmax", "sigmoid"))
        self.loss_kind = loss
        self.label_smoothing = arguments.rate("label_smoothing", label_smoothing)
        self.class_weights = None if class_weights is None else np.array(class_weights, "float32")
        self.logit_offsets = None if logit_offsets is None else np.array(logit_offsets, "float32")
        self.focal_gamma = arguments.non_negative("focal_gamma", focal_gamma)
        self.multi_label = multi_label
        if multi_label:
            # The outputs are logits, so the threshold is 0, not 0.5.
            self.accuracy = keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)
            self.average_precision = AveragePrecision(
                name="average_precision",
                curve="PR",
                multi_label=True,
                num_labels=network.output_shape[-1],
                from_logits=True,
            )
        else:
            self.accuracy = keras.metrics.CategoricalAccuracy("accuracy")

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        logits = self.network(x, training=training)  # (B, K)
        return self.losses_of(logits, y, training), logits

    def losses_of(self, logits: Any, y: Any, training: bool) -> Any:
        """Computes per-example losses (B,) from logits (B, K) and labels (B, K).

        Label smoothing, class weights, offsets of the logits and the factor of the focal loss
        apply only in training, not in validation.

        Reference: https://arxiv.org/abs/2007.07314 (offsets), https://arxiv.org/abs/1708.02002
        """
        weights = self.class_weights if training else None
        focal = self.focal_gamma if training else 0.0
        if training and self.logit_offsets is not None:
            logits = logits + self.logit_offsets
        smoothed = y
        if training and self.label_smoothing:
            level = 0.5 if self.loss_kind == "sigmoid" else 1 / logits.shape[-1]
            smoothed = y * (1 - self.label_smoothing) + self.label_smoothing * level
        if self.loss_kind == "sigmoid":
            label_losses = ops.binary_crossentropy(smoothed, logits, from_logits=True)  # (B, K)
            if focal:
                label_losses = label_losses * _power(ops.abs(y - ops.sigmoid(logits)), focal)
            if weights is not None:
                label_losses = label_losses * (1 + y * (weights - 1))
            return ops.mean(label_losses, axis=-1)
        losses = ops.categorical_crossentropy(smoothed, logits, from_logits=True)  # (B,)
        if focal:
            losses = losses * _power(1 - ops.sum(y * ops.softmax(logits), axis=-1), focal)
        return losses if weights is None else losses * ops.sum(y * weights, axis=-1)

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        if self.multi_label:
            y = ops.cast(y > 0.5, "float32")  # a mixed image has the labels above one half
            self.average_precision.update_state(y, outputs, sample_weight=weight[:, None])
        self.accuracy.update_state(y, outputs, sample_weight=weight)

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        return [self.accuracy, self.average_precision] if self.multi_label else [self.accuracy]


def _power(errors: Any, exponent: float) -> Any:
    """Returns powers of errors, with a finite derivative at 0 for exponents below 1."""
    return ops.maximum(errors, 1e-7) ** exponent
