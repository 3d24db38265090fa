"""Optimizers with per-variable learning rates and weight decay, built from a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit import models
from keras_vit.adamw import OnePassAdam
from keras_vit.runs.recipe import Recipe
from keras_vit.training import ema, param_groups
from keras_vit.training.schedules import WarmupDecay


def clip_gradients(gradients: list[Any], clip_norm: float, scale: Any) -> tuple[list[Any], Any]:
    """Clips gradients by their global norm; also returns the norm, unscaled and unclipped."""
    ops = keras.ops
    norm = ops.sqrt(sum(ops.sum(ops.square(ops.cast(g, "float32") / scale)) for g in gradients))
    if clip_norm:
        factor = clip_norm / ops.maximum(norm, clip_norm)
        gradients = [g * ops.cast(factor, g.dtype) for g in gradients]
    return gradients, norm


class PerVariable:
    """Mixin for Keras optimizers that adds per-variable learning rates and weight decay.

    Gradients must be summed over the replicas and clipped before (`clip_gradients`): Keras clips
    gradients before they are summed, so that results depend on the number of replicas.
    """

    #: Whether the momentum of averaged weights rises; runs of earlier versions resume without.
    warms_up_average = True

    def __init__(
        self,
        rates: Sequence[float],
        weight_decays: Sequence[float],
        coupled: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._rates = tuple(rates)
        self._weight_decays = tuple(weight_decays)
        self._coupled = coupled

    def update_step(self: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        rate = keras.ops.cast(learning_rate, variable.dtype) * self._rates[index]
        weight_decay = self._weight_decays[index]
        if weight_decay and self._coupled:
            gradient = gradient + weight_decay * variable
        elif weight_decay:
            self.assign_sub(variable, variable * (rate * weight_decay))
        super().update_step(gradient, variable, rate)  # type: ignore[misc]

    def finalize_variable_values(self, var_list: Any) -> None:
        # Keras' hook at the end of `fit`, which replaces the weights by the averages. Training
        # continues from the weights; saving and evaluation use the averages.
        pass

    def _update_model_variables_moving_average(self: Any, trainable_variables: Any) -> None:
        # Keras' hook after each step. With a constant momentum, the average of a short run would
        # be close to its first weights.
        if self.use_ema:
            averages = self._model_variables_moving_average
            momentum = ema.momentum(self.iterations, self.ema_momentum, self.warms_up_average)
            ema.update(averages, trainable_variables, momentum)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        # Keras' hook under tf.distribute; the gradients are already summed.
        return grads_and_vars


class _Momentum(keras.optimizers.SGD):
    """SGD with momentum as defined in optax and PyTorch: m = beta m + g, w -= lr m.

    Keras accumulates the updates lr g, so that during warm-up from zero the first gradients have
    almost no effect.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = keras.ops.cast(learning_rate, variable.dtype)
        gradient = keras.ops.cast(gradient, variable.dtype)
        if self.momentum:
            momentum = self.momentums[self._get_variable_index(variable)]
            self.assign(momentum, self.momentum * momentum + gradient)
            gradient = momentum
        self.assign_sub(variable, rate * gradient)


class SGD(PerVariable, _Momentum):
    """SGD with momentum and per-variable settings."""


class AdamW(PerVariable, OnePassAdam):
    """`keras.optimizers.Adam` with decoupled weight decay and per-variable settings."""


class Lion(PerVariable, keras.optimizers.Lion):
    """`keras.optimizers.Lion` with per-variable settings."""


class Adafactor(PerVariable, keras.optimizers.Adafactor):
    """`keras.optimizers.Adafactor` with per-variable settings."""


def build_schedule(recipe: Recipe, steps: int) -> WarmupDecay:
    """Builds the learning-rate schedule of a run from its recipe."""
    warmup_steps = recipe.warmup_steps or round(recipe.warmup_fraction * steps)
    if warmup_steps >= steps:
        print(
            f"Note: the run of {steps} steps ends within the {warmup_steps} warm-up steps, below "
            "the peak learning rate: set warmup_steps=0 and warmup_fraction."
        )
    return WarmupDecay(
        recipe.learning_rate,
        total_steps=steps,
        warmup_steps=warmup_steps,
        decay=recipe.decay,
        final_fraction=recipe.final_fraction,
        timescale=recipe.timescale,
    )


def state_per_weight(recipe: Recipe) -> int:
    """Returns how many state values the optimizer stores per weight, not counting the EMA."""
    momenta = int(recipe.beta_1 > 0)
    return {"sgd": momenta, "adamw": 2, "lion": 1, "adafactor": 1}[recipe.optimizer]


def build_optimizer(
    recipe: Recipe, model: keras.layers.Layer, steps: int, precision: str = "float32"
) -> keras.Optimizer:
    """Builds the optimizer of a run, including its learning-rate schedule and its variables."""
    variables = model.trainable_variables
    network = getattr(model, "network", model)  # an objective may also train a decoder
    config = models.config_of(network) if models.has_config(network) else None
    common: dict[str, Any] = {
        "rates": param_groups.layer_rates(variables, config, recipe.layer_decay),
        "weight_decays": [
            recipe.weight_decay * param_groups.decays(v, recipe.weight_decay_on) for v in variables
        ],
        "coupled": recipe.weight_decay_coupled,
        "learning_rate": build_schedule(recipe, steps),
        "use_ema": recipe.ema_momentum > 0,
        "ema_momentum": recipe.ema_momentum,
    }
    optimizer: keras.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = SGD(momentum=float(recipe.beta_1), **common)
    elif recipe.optimizer in ("adamw", "lion"):
        cls = AdamW if recipe.optimizer == "adamw" else Lion
        optimizer = cls(beta_1=float(recipe.beta_1), beta_2=float(recipe.beta_2), **common)
    else:
        optimizer = Adafactor(relative_step=False, **common)
    if precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    # Variables built in the first step trace its graph twice: 10 s for twelve blocks.
    optimizer.build(variables)
    return optimizer
