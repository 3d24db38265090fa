"""Learning-rate schedule with linear warm-up and decay."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.choices import DECAYS


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning-rate schedule with a linear warm-up from zero, followed by a decay.

    With p = clip((t - warmup_steps) / (total_steps - warmup_steps), 0, 1), f = final_fraction
    and s = t - warmup_steps (at least 0) the rate at step t is

        peak * min(1, t / warmup_steps) * d(t)

    where d(t) is

    - cosine: f + (1 - f) * (1 + cos(pi * p)) / 2
    - linear: f + (1 - f) * (1 - p)
    - rsqrt: 1 / sqrt(1 + s / timescale)
    - constant: 1

    A run of T steps uses the values for t = 0 ... T - 1.

    Reference: cosine and linear as `create_learning_rate_schedule` in
    https://github.com/google-research/vision_transformer/blob/main/vit_jax/utils.py, which calls
    `final_fraction * peak` `linear_end`; rsqrt as in
    https://github.com/google-research/big_vision/blob/main/big_vision/utils.py
    """

    def __init__(
        self,
        peak: float,
        total_steps: int,
        warmup_steps: int = 0,
        decay: str = "cosine",
        final_fraction: float = 0.0,
        timescale: float = 10_000.0,
    ) -> None:
        super().__init__()
        arguments.one_of("decay", decay, DECAYS)
        self.peak = float(peak)
        self.total_steps = arguments.positive_int("total_steps", total_steps)
        self.warmup_steps = arguments.count("warmup_steps", warmup_steps)
        self.decay = decay
        self.final_fraction = arguments.fraction("final_fraction", final_fraction)
        self.timescale = arguments.positive("timescale", timescale)

    def __call__(self, step: Any) -> Any:
        t = ops.cast(step, "float32")
        s = ops.maximum(t - self.warmup_steps, 0.0)
        p = ops.minimum(s / max(self.total_steps - self.warmup_steps, 1), 1.0)
        f = self.final_fraction
        if self.decay == "cosine":
            factor = f + (1 - f) * 0.5 * (1 + ops.cos(math.pi * p))
        elif self.decay == "linear":
            factor = f + (1 - f) * (1 - p)
        elif self.decay == "rsqrt":
            factor = ops.rsqrt(1 + s / self.timescale)
        else:
            factor = ops.ones_like(t)
        if self.warmup_steps:
            factor = factor * ops.minimum(t / self.warmup_steps, 1.0)
        return self.peak * factor

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))  # the constructor arguments, in attributes of the same names
