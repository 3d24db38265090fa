"""Keras model that optimizes the objective of a task with `fit`."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit.runs.config import CommonConfig
from keras_vit.tasks.objective import Objective
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.precision import precision_of

if keras.backend.backend() == "jax":
    from keras_vit.training.jax_steps import JaxSteps as Steps
else:
    from keras_vit.training.tensorflow_steps import TensorFlowSteps as Steps  # type: ignore[assignment]


class TrainingModel(Steps, keras.Model):
    """Keras model that minimizes an objective, with equal results on any number of devices.

    One step minimizes the weighted mean loss of the global batch, sum_i w_i loss_i / sum_i w_i,
    independent of the number of replicas and micro-batches, and of an uneven division of a short
    batch: gradients are summed over replicas and micro-batches, then their norm is computed, then
    they are clipped. Keras clips before the sum and averages the replicas' means.
    """

    def __init__(
        self, objective: Objective, *, accumulation_steps: int = 1, clip_norm: float = 0.0
    ) -> None:
        super().__init__(name=f"{objective.network.name}_training")
        self.objective = objective
        self.accumulation_steps = accumulation_steps
        self.clip_norm = clip_norm
        self.loss_metric = keras.metrics.Mean("loss")
        self.gradient_norm = keras.metrics.Mean("gradient_norm")
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.network(inputs, training=training)

    @property
    def network(self) -> keras.Model:
        """The network that is trained."""
        return self.objective.network

    @property
    def training_metrics(self) -> list[keras.metrics.Metric]:
        """Metrics that `fit` reports for the training set."""
        return [self.loss_metric, *self.objective.scores, self.gradient_norm]

    @property
    def test_metrics(self) -> list[keras.metrics.Metric]:
        """Metrics that `fit` and `evaluate` report for the validation set."""
        return [self.loss_metric, *self.objective.scores]

    def unpack(self, data: Any) -> tuple[Any, Any, Any]:
        """Returns inputs, labels and weights of a batch; the weights are 1 if there are none."""
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        if weight is None:
            weight = ops.ones(ops.shape(keras.tree.flatten(x)[0])[:1])
        return x, y, ops.cast(weight, "float32")

    def update_metrics(self, losses: Any, y: Any, outputs: Any, weight: Any) -> None:
        """Updates the loss and the scores with a batch; examples of weight 0 are padding."""
        self.loss_metric.update_state(losses, sample_weight=weight)
        # Class weights apply to the loss, not to the scores.
        self.objective.update_scores(y, outputs, ops.cast(weight > 0, "float32"))

    def update_gradient_norm(self, norm: Any) -> None:
        """Updates the gradient norm metric, unless loss scaling skips the step on overflow."""
        finite = ops.cast(ops.isfinite(norm), "float32")
        self.gradient_norm.update_state(ops.where(finite > 0, norm, 0.0), sample_weight=finite)


def build_training_model(objective: Objective, config: CommonConfig, steps: int) -> TrainingModel:
    """Builds and compiles the Keras model that trains an objective according to the recipe."""
    recipe = config.recipe
    training_model = TrainingModel(
        objective, accumulation_steps=recipe.accumulation_steps, clip_norm=recipe.clip_norm
    )
    training_model.compile(
        optimizer=build_optimizer(
            recipe, objective, max(steps * recipe.epochs, 1), precision_of(config)
        ),
        # XLA makes a step 4% faster for a ViT-Ti/16 on a CPU, and a third faster for a tiny model
        # (benchmarks/results/), but tf.distribute strategies do not support it.
        jit_compile=keras.backend.backend() == "jax",
    )
    return training_model
