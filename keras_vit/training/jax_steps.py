"""Training and validation steps for the JAX backend, also with `keras.distribution`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras

from keras_vit.training.optimizers import clip_gradients


class JaxSteps:
    """JAX implementation of the training and validation steps of `TrainingModel`.

    JAX computes on the whole batch, even if it is sharded, so several devices need no extra code.
    """

    def train_step(self: Any, state: Any, data: Any) -> tuple[dict[str, Any], Any]:
        trainable, non_trainable, optimizer_variables, metrics = state
        batch = self.unpack(data)
        with self._scope(self.optimizer.variables, optimizer_variables):
            scale = self.optimizer.scale_loss(jnp.ones(()))
        gradients, (non_trainable, metrics) = self._gradients(
            trainable, (non_trainable, metrics), batch, scale
        )
        gradients, norm = clip_gradients(gradients, self.clip_norm, scale)
        trainable, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        with self._scope(self.metrics_variables, metrics) as scope:
            self.update_gradient_norm(norm)
            logs = {metric.name: metric.result() for metric in self.training_metrics}
        metrics = _values(scope, self.metrics_variables)
        return logs, (trainable, non_trainable, optimizer_variables, metrics)

    def test_step(self: Any, state: Any, data: Any) -> tuple[dict[str, Any], Any]:
        trainable, *states = state
        batch = self.unpack(data)
        _, (non_trainable, metrics) = self._sum_of_losses(trainable, states, batch, training=False)
        with self._scope(self.metrics_variables, metrics):
            logs = {metric.name: metric.result() for metric in self.test_metrics}
        return logs, (trainable, non_trainable, metrics)

    def _gradients(
        self: Any, trainable: Any, states: Any, batch: Any, scale: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        """Returns the gradients of the mean loss multiplied by `scale`, and the updated states.

        `states` are the values of the non-trainable variables and of the metrics.
        """
        total = jnp.sum(batch[2])

        def loss(trainable: Any, states: Any, part: Any) -> tuple[Any, Any]:
            summed, states = self._sum_of_losses(trainable, states, part, training=True)
            return summed / total * scale, states

        gradient = jax.grad(loss, has_aux=True)
        if self.accumulation_steps == 1:
            return gradient(trainable, states, batch)

        def step(carry: Any, part: Any) -> tuple[Any, None]:
            gradients, states = carry
            part_gradients, states = gradient(trainable, states, part)
            return ([a + b for a, b in zip(gradients, part_gradients, strict=True)], states), None

        zeros = [jnp.zeros_like(v) for v in trainable]
        carry, _ = jax.lax.scan(step, (zeros, states), _parts(batch, self.accumulation_steps))
        return carry

    def _sum_of_losses(
        self: Any, trainable: Any, states: Any, batch: Any, training: bool
    ) -> tuple[Any, tuple[Any, ...]]:
        x, y, weight = batch
        groups = (self.trainable_variables, self.non_trainable_variables, self.metrics_variables)
        variables = [v for group in groups for v in group]
        values = [v for group in (trainable, *states) for v in group]
        with self._scope(variables, values) as scope:
            losses, outputs = self.objective.example_losses(x, y, training=training)
            self.update_metrics(jax.lax.stop_gradient(losses), y, outputs, weight)
        return jnp.sum(losses * weight), tuple(_values(scope, group) for group in groups[1:])

    def _scope(self, variables: list[Any], values: list[Any]) -> keras.StatelessScope:
        return keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True)))


def _values(scope: keras.StatelessScope, variables: list[Any]) -> list[Any]:
    return [scope.get_current_value(v) for v in variables]


def _parts(batch: Any, number: int) -> Any:
    """Splits a batch into `number` micro-batches, each with every `number`-th example."""

    def divide(t: Any) -> Any:
        if t.shape[0] % number:
            raise ValueError(
                "Every batch, also the last, must have a multiple of `accumulation_steps` "
                f"images. Received: accumulation_steps={number}, a batch of {t.shape[0]}"
            )
        # Each part has examples of every device, so that no example moves to another device.
        return jnp.swapaxes(t.reshape(t.shape[0] // number, number, *t.shape[1:]), 0, 1)

    return jax.tree.map(divide, batch)
