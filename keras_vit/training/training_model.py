"""The model that `fit` trains: an objective, and how a step minimizes it."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit.tasks.objective import Objective

if keras.backend.backend() == "jax":
    from keras_vit.training.jax_steps import JaxSteps as Steps
else:
    from keras_vit.training.tensorflow_steps import TensorFlowSteps as Steps  # type: ignore[assignment]


class TrainingModel(Steps, keras.Model):
    """Training of an objective with `fit`, with the same result on any number of devices.

    One step minimizes the weighted mean loss of the whole batch, sum_i w_i loss_i / sum_i w_i,
    whatever the number of replicas and micro-batches it is computed on, and however unevenly a
    short batch falls on them: gradients are summed over all of them, then measured, then clipped.
    Keras clips before the sum and averages the replicas' means.

    Reference: sharpness-aware minimization: https://arxiv.org/abs/2010.01412
    """

    def __init__(
        self,
        objective: Objective,
        *,
        accumulation_steps: int = 1,
        clip_norm: float = 0.0,
        clip_variable_norm: float = 0.0,
        sam_radius: float = 0.0,
    ) -> None:
        super().__init__(name=f"{objective.network.name}_training")
        self.objective = objective
        self.accumulation_steps = accumulation_steps
        self.clip_norm = clip_norm
        self.clip_variable_norm = clip_variable_norm
        self.sam_radius = sam_radius
        self.loss_metric = keras.metrics.Mean("loss")
        self.gradient_norm = keras.metrics.Mean("gradient_norm")
        self.built = True
        self.prepare_steps()

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.network(inputs, training=training)

    @property
    def network(self) -> keras.Model:
        """The network in training."""
        return self.objective.network

    @property
    def training_metrics(self) -> list[keras.metrics.Metric]:
        """What `fit` reports of the training."""
        return [self.loss_metric, *self.objective.scores, self.gradient_norm]

    @property
    def test_metrics(self) -> list[keras.metrics.Metric]:
        """What `fit` and `evaluate` report of the validation."""
        return [self.loss_metric, *self.objective.scores]

    def update_metrics(self, losses: Any, y: Any, outputs: Any, weight: Any) -> None:
        """Updates loss and scores with some examples; weight 0 marks those that fill a batch."""
        self.loss_metric.update_state(losses, sample_weight=weight)
        # The weight of a class says how much a mistake costs, not how often it is counted.
        self.objective.update_scores(y, outputs, ops.cast(weight > 0, "float32"))

    def clip(self, gradients: list[Any], scale: Any) -> tuple[list[Any], Any]:
        """Clips the gradients of the mean loss."""
        squares = [ops.sum(ops.square(ops.cast(g, "float32") / scale)) for g in gradients]
        norm = ops.sqrt(sum(squares))
        if self.clip_variable_norm:
            limits = [_shrink(ops.sqrt(square), self.clip_variable_norm) for square in squares]
            gradients = [g * ops.cast(s, g.dtype) for g, s in zip(gradients, limits, strict=True)]
            squares = [s * s * square for s, square in zip(limits, squares, strict=True)]
        if self.clip_norm:
            factor = _shrink(ops.sqrt(sum(squares)), self.clip_norm)
            gradients = [g * ops.cast(factor, g.dtype) for g in gradients]
        return gradients, norm

    def update_gradient_norm(self, norm: Any) -> None:
        """Reports the norm, except where loss scaling skips the step because it overflowed."""
        finite = ops.cast(ops.isfinite(norm), "float32")
        self.gradient_norm.update_state(ops.where(finite > 0, norm, 0.0), sample_weight=finite)

    def perturbation(self, gradients: list[Any]) -> list[Any]:
        """Returns the step of length `sam_radius` uphill."""
        norm = ops.sqrt(sum(ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients))
        factor = self.sam_radius / ops.maximum(norm, 1e-12)
        return [g * ops.cast(factor, g.dtype) for g in gradients]


def _shrink(norm: Any, limit: float) -> Any:
    """Returns the factor that brings a norm down to a limit."""
    return limit / ops.maximum(norm, limit)
