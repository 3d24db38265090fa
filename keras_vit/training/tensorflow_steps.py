"""Training and validation steps for the TensorFlow backend, also with `tf.distribute`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_vit.training.optimizers import clip_gradients


class TensorFlowSteps:
    """TensorFlow implementation of the training and validation steps of `TrainingModel`.

    Under a `tf.distribute` strategy, the steps run on every replica, and the metrics are computed
    for the whole batch after all replicas have finished. Keras instead computes the metrics on
    every replica and averages them, which fails under MultiWorkerMirroredStrategy.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._under_strategy = tf.distribute.has_strategy()  # when the model was built

    def train_step(self: Any, data: Any) -> dict[str, Any]:
        x, y, weight = self.unpack(data)
        scale = self.optimizer.scale_loss(tf.ones(()))
        gradients, norm = clip_gradients(self._gradients(x, y, weight), self.clip_norm, scale)
        self.update_gradient_norm(norm)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {metric.name: metric.result() for metric in self.training_metrics}

    def test_step(self: Any, data: Any) -> dict[str, Any]:
        x, y, weight = self.unpack(data)
        losses, outputs = self.objective.example_losses(x, y, training=False)
        self.update_metrics(losses, y, outputs, weight)
        return {metric.name: metric.result() for metric in self.test_metrics}

    def make_train_function(self: Any, force: bool = False) -> None:
        if not self._under_strategy:
            super().make_train_function(force)  # type: ignore[misc]
        elif self.train_function is None or force:
            self.train_function = self._on_all_replicas(self.train_step, self.training_metrics)

    def make_test_function(self: Any, force: bool = False) -> None:
        if not self._under_strategy:
            super().make_test_function(force)  # type: ignore[misc]
        elif self.test_function is None or force:
            self.test_function = self._on_all_replicas(self.test_step, self.test_metrics)

    def _gradients(self: Any, x: Any, y: Any, weight: Any) -> list[Any]:
        """Returns the gradients of the global batch's mean loss, multiplied by the loss scale."""
        replica = tf.distribute.get_replica_context()
        multi_replica = replica.num_replicas_in_sync > 1
        total = tf.reduce_sum(weight)
        if multi_replica:
            total = replica.all_reduce(tf.distribute.ReduceOp.SUM, total)
        variables = self.trainable_variables
        gradients: list[Any] = []
        for part_x, part_y, part_weight in _parts((x, y, weight), self.accumulation_steps):
            # In sequence; otherwise all parts would be in memory at once.
            with tf.control_dependencies(gradients):
                with tf.GradientTape() as tape:
                    losses, outputs = self.objective.example_losses(part_x, part_y, training=True)
                    # Divided by the global total, as the total of an empty part is 0.
                    loss = tf.reduce_sum(losses * part_weight) / total
                    loss = self.optimizer.scale_loss(loss)
                part_gradients = tape.gradient(
                    loss,
                    # TensorFlow cannot create zeros for Keras' own variables.
                    [v.value for v in variables],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
            if self.accumulation_steps > 1:  # those of rows of a table are `tf.IndexedSlices`
                part_gradients = list(map(tf.convert_to_tensor, part_gradients))
            if gradients:
                part_gradients = [a + b for a, b in zip(gradients, part_gradients, strict=True)]
            gradients = part_gradients
            self.update_metrics(losses, part_y, outputs, part_weight)
        if multi_replica:
            gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        return gradients

    def _on_all_replicas(
        self: Any, step: Callable[[Any], Any], metrics: list[keras.metrics.Metric]
    ) -> Callable[[Any], dict[str, Any]]:
        strategy = self.distribute_strategy

        @tf.function(autograph=False)
        def run(iterator: Any) -> dict[str, Any]:
            def step_without_result(data: Any) -> None:
                step(data)

            strategy.run(step_without_result, args=(next(iterator),))
            return {metric.name: tf.identity(metric.result()) for metric in metrics}

        return run

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        # Keras' hook to build unbuilt layers from a batch of every replica. It fails under
        # MultiWorkerMirroredStrategy, and the model is already built.
        pass


def _parts(batch: Any, number: int) -> Iterator[Any]:
    """Splits a batch into micro-batches whose sizes differ by at most one."""
    if number == 1:
        yield batch
        return
    first = tf.nest.flatten(batch)[0]
    size = first.shape[0] or tf.shape(first)[0]
    for index in range(number):
        begin, end = index * size // number, (index + 1) * size // number
        yield tf.nest.map_structure(lambda t: t[begin:end], batch)  # noqa: B023
