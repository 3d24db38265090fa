"""Optimizers with per-variable learning rates and weight decay, built from a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit import models
from keras_vit.adamw import OnePassAdam
from keras_vit.runs.recipe import Recipe
from keras_vit.training import param_groups
from keras_vit.training.schedules import WarmupDecay


class PerVariable:
    """Mixin for Keras optimizers that adds per-variable learning rates and weight decay.

    Gradients must be summed over the replicas and clipped before (by
    `keras_vit.training.training_model`): Keras clips gradients before they are summed, so that
    results depend on the number of replicas.
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
        if not self.use_ema:
            return
        step = keras.ops.cast(self.iterations, "float32")
        momentum = keras.ops.convert_to_tensor(float(self.ema_momentum), "float32")
        if self.warms_up_average:
            momentum = keras.ops.minimum(momentum, (1 + step) / (10 + step))
        momentum = keras.ops.where(step > 0, momentum, 0.0)  # the first step sets the average
        for variable, average in zip(
            trainable_variables, self._model_variables_moving_average, strict=True
        ):
            m = keras.ops.cast(momentum, variable.dtype)
            average.assign(m * average + (1 - m) * variable)

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
            gathered = self.momentums[self._get_variable_index(variable)]
            self.assign(gathered, self.momentum * gathered + gradient)
            gradient = gathered
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
    if recipe.optimizer == "sgd":
        return int(recipe.beta_1 > 0)
    return {"adamw": 2, "lion": 1, "adafactor": 1}[recipe.optimizer]


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
        kind = AdamW if recipe.optimizer == "adamw" else Lion
        optimizer = kind(beta_1=float(recipe.beta_1), beta_2=float(recipe.beta_2), **common)
    else:
        optimizer = Adafactor(relative_step=False, **common)
    if precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    # Variables built in the first step trace its graph twice: 10 s for twelve blocks.
    optimizer.build(variables)
    return optimizer
