"""Values of options, for commands that check them before Keras is imported."""

from __future__ import annotations

# Of the learning rate, after warm-up (`training.schedules.WarmupDecay`).
DECAYS = ("cosine", "linear", "rsqrt", "constant")
# Of devices (`training.distribution.devices`).
STRATEGIES = ("auto", "cpu", "mirrored", "tpu", "multiworker", "jax")
