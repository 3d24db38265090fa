"""Base class of training objectives, which define losses and metrics."""

from __future__ import annotations

from typing import Any

import keras


class Objective(keras.layers.Layer):
    """Training objective of a network: the loss of each example, and the metrics to report.

    It contains the variables of the network and of parts used only in training, such as a decoder.
    A subclass must assign the network first, because saved states number the variables in order.

    Args:
        network: The functional model whose weights are trained.
        mean: Name of the metric that is the mean of the outputs of `example_losses`, (B,), for
            objectives with this metric alone; None for others.

    Examples:
        >>> class Norm(Objective):
        ...     def example_losses(self, x, y, training):
        ...         outputs = self.network(x, training=training)
        ...         return keras.ops.mean(outputs**2, axis=-1), outputs
        >>> network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> losses, _ = Norm(network).example_losses(keras.ops.ones((5, 3)), None, training=True)
        >>> tuple(losses.shape)
        (5,)
    """

    def __init__(self, network: keras.Model, mean: str | None = None) -> None:
        super().__init__(name="objective")
        self.network = network
        self.mean = keras.metrics.Mean(mean) if mean else None
        self.built = True

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        """Computes the loss of each example in a batch.

        Args:
            x: Images (B, h, w, C), scaled for the network.
            y: Targets.
            training: Whether the losses are for training, not for validation.

        Returns:
            The losses (B,), and the `outputs` of `update_scores`.
        """
        raise NotImplementedError

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        """Updates the metrics; `weight` (B,) is 0 for examples that only pad a batch."""
        if self.mean:
            self.mean.update_state(outputs, sample_weight=weight)

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        """The metrics that are updated by `update_scores`."""
        return [self.mean] if self.mean else []

    @property
    def state(self) -> list[keras.Variable]:
        """All variables that a training step uses, except the variables of metrics."""
        metrics = {id(v) for v in self.metrics_variables}
        return [v for v in self.variables if id(v) not in metrics]
