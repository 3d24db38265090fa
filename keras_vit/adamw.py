"""AdamW with a fused update, for TensorFlow on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.layers import fused_elementwise


class OnePassAdam(keras.optimizers.Adam):
    """Adam that updates each variable in a single pass, for TensorFlow on a CPU.

    On a CPU, the update of `keras.optimizers.Adam` takes twelve passes, a noticeable part of a
    training step (docs/decisions/0019-performance.md). On other backends and devices, the compiler
    of the whole step fuses the passes.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if not self._in_one_pass():
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        state = variable, self._momentums[index], self._velocities[index]
        gradient, rate = (ops.cast(x, variable.dtype) for x in (gradient, learning_rate))
        decay = self.weight_decay if self.weight_decay and self._use_weight_decay(variable) else 0
        step = ops.cast(self.iterations + 1, variable.dtype)
        update = fused_elementwise.one_pass(_update(self.beta_1, self.beta_2, self.epsilon))
        for old, new in zip(state, update(*state, gradient, rate, rate * decay, step), strict=True):
            self.assign(old, new)

    def _apply_weight_decay(self, variables: Any) -> None:
        # Keras' hook before all updates: weight decay is part of the fused update.
        if not self._in_one_pass():
            super()._apply_weight_decay(variables)

    def _in_one_pass(self) -> bool:
        return not self.amsgrad and fused_elementwise.is_enabled()


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(OnePassAdam, keras.optimizers.AdamW):
    """Drop-in replacement for `keras.optimizers.AdamW`, faster with TensorFlow on a CPU.

    The results are equal up to rounding. Reference: https://arxiv.org/abs/1711.05101.

    Args:
        **kwargs: Arguments of `keras.optimizers.AdamW`, with its defaults: `learning_rate`,
            `weight_decay`, `beta_1`, `beta_2`, `clipnorm` and more.

    Examples:
        >>> optimizer = AdamW(learning_rate=0.25, weight_decay=0.5)
        >>> variable = keras.Variable([1.0])
        >>> optimizer.apply([keras.ops.ones(1)], [variable])
        >>> round(float(variable[0]), 4)  # 1 - 0.25 * 0.5 - 0.25
        0.625
    """


@functools.cache
def _update(beta_1: float, beta_2: float, epsilon: float) -> Callable[..., Any]:
    def update(
        w: Any, m: Any, v: Any, gradient: Any, rate: Any, decay: Any, step: Any
    ) -> tuple[Any, ...]:
        w = w - w * decay
        m = m + (gradient - m) * (1 - beta_1)
        v = v + (gradient * gradient - v) * (1 - beta_2)
        rate = rate * ops.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        return w - m * rate / (ops.sqrt(v) + epsilon), m, v

    return update
