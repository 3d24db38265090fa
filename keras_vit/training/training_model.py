"""The model that `fit` trains: a network, what its loss is, and how a step updates it.

Letters: B batch; K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments
from keras_vit.runs.recipe import LOSSES

if keras.backend.backend() == "jax":
    from keras_vit.training.jax_steps import JaxSteps as Steps
else:
    from keras_vit.training.tensorflow_steps import TensorFlowSteps as Steps  # type: ignore[assignment]


class Trainee(Steps, keras.Model):
    """A network in training, for `fit` on any number of devices with the same result.

    One update is that of the weighted mean loss of the whole batch, sum_i w_i loss_i / sum_i w_i,
    whatever the number of replicas and micro-batches it is computed on, and however unevenly a
    short batch falls on them: gradients are summed over all of them, then measured, then clipped.
    Keras clips before the sum and averages the replicas' means.

    Subclasses say what the loss is: `example_losses`.

    Args:
        network: The functional model whose weights are trained.
        accumulation_steps: Micro-batches that a batch is divided into, one after the other, to
            need less memory.
        clip_norm: Largest norm of all gradients together; 0 for no clipping.
        clip_variable_norm: Largest norm of each variable's gradient; 0 for no clipping.
        sam_radius: Distance rho to the place where sharpness-aware minimisation takes the
            gradient, for twice the time; 0 for the plain gradient.

    Reference: sharpness-aware minimisation: https://arxiv.org/abs/2010.01412
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        accumulation_steps: int = 1,
        clip_norm: float = 0.0,
        clip_variable_norm: float = 0.0,
        sam_radius: float = 0.0,
    ) -> None:
        super().__init__(name=f"{network.name}_trainee")
        self.network = network
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

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        """Returns the loss of every example, (B,), and what `update_scores` wants to see."""
        raise NotImplementedError

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        """Updates the metrics other than loss and gradient norm."""

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        """The metrics of `update_scores`."""
        return []

    @property
    def state(self) -> list[keras.Variable]:
        """What a step changes or draws from, but for optimizer and metrics."""
        metrics = {id(v) for v in self.metrics_variables}
        return [v for v in self.variables if id(v) not in metrics]

    @property
    def training_metrics(self) -> list[keras.metrics.Metric]:
        """What `fit` reports of the training."""
        return [self.loss_metric, *self.scores, self.gradient_norm]

    @property
    def test_metrics(self) -> list[keras.metrics.Metric]:
        """What `fit` and `evaluate` report of the validation."""
        return [self.loss_metric, *self.scores]

    def update_metrics(self, losses: Any, y: Any, outputs: Any, weight: Any) -> None:
        """Updates loss and scores with some examples; weight 0 marks those that fill a batch."""
        self.loss_metric.update_state(losses, sample_weight=weight)
        # The weight of a class says how much a mistake costs, not how often it is counted.
        self.update_scores(y, outputs, ops.cast(weight > 0, "float32"))

    def clip(self, gradients: list[Any], scale: Any) -> tuple[list[Any], Any]:
        """Clips the gradients of the mean loss.

        Args:
            gradients: Gradients, multiplied by `scale`.
            scale: What the loss was multiplied with against underflow.

        Returns:
            The clipped gradients, still multiplied by `scale`, and their norm before, without it.
        """
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


class Classifier(Trainee):
    """A network that learns to classify.

    Args:
        network: Images to logits (B, K).
        loss: `"softmax"` cross-entropy, or `"sigmoid"`: a yes or no for each class.
        multi_label: Whether an image may show several classes or none; then accuracy counts each
            class by itself, and the mean average precision comes with it.
        label_smoothing: Share of the target spread over all classes, in [0, 1); with `"sigmoid"`
            over yes and no.
        class_weights: What a mistake costs where an image shows the class, (K,); by default 1.
        **kwargs: As for `Trainee`.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(
        ...     image_size=(8, 8), classes=3, classifier_activation=None
        ... )
        >>> trainee = Classifier(models.build(config))
        >>> trainee.compile(optimizer="sgd")
        >>> x, y = np.ones((5, 8, 8, 3), "float32"), np.eye(3, dtype="float32")[[0, 1, 2, 0, 1]]
        >>> sorted(trainee.evaluate(x, y, verbose=0, return_dict=True))
        ['accuracy', 'loss']
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        loss: str = "softmax",
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, **kwargs)
        arguments.one_of("loss", loss, LOSSES)
        self.loss_kind = loss
        self.label_smoothing = arguments.rate("label_smoothing", label_smoothing)
        self.class_weights = None if class_weights is None else np.array(class_weights, "float32")
        self.multi_label = multi_label
        # Not threshold 0.5: the outputs are logits.
        self.accuracy = (
            keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)
            if multi_label
            else keras.metrics.CategoricalAccuracy("accuracy")
        )
        if multi_label:
            self.average_precision = keras.metrics.AUC(
                name="average_precision",
                curve="PR",
                multi_label=True,
                num_labels=network.output_shape[-1],
                from_logits=True,
            )

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        logits = self(x, training=training)  # (B, K)
        return self.losses_of(logits, y, training), logits

    def losses_of(self, logits: Any, y: Any, training: bool) -> Any:
        """Returns the loss of every example, (B,), from logits and labels (B, K).

        Smoothing and class weights are means of training: the validation is without them.
        """
        weights = self.class_weights if training else None
        smoothed = y
        if training and self.label_smoothing:
            level = 0.5 if self.loss_kind == "sigmoid" else 1 / logits.shape[-1]
            smoothed = y * (1 - self.label_smoothing) + self.label_smoothing * level
        if self.loss_kind == "sigmoid":
            each = ops.binary_crossentropy(smoothed, logits, from_logits=True)  # (B, K)
            if weights is not None:
                each = each * (1 + y * (weights - 1))
            return ops.mean(each, axis=-1)
        losses = ops.categorical_crossentropy(smoothed, logits, from_logits=True)  # (B,)
        return losses if weights is None else losses * ops.sum(y * weights, axis=-1)

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        if self.multi_label:
            y = ops.cast(y > 0.5, "float32")  # a mixed image counts as what it shows most of
            self.average_precision.update_state(y, outputs, sample_weight=weight[:, None])
        self.accuracy.update_state(y, outputs, sample_weight=weight)

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        return [self.accuracy, self.average_precision] if self.multi_label else [self.accuracy]


def _shrink(norm: Any, limit: float) -> Any:
    """Returns the factor that brings a norm down to a limit."""
    return limit / ops.maximum(norm, limit)
