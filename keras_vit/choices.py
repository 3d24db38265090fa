"""Values of options, for commands that check them before Keras is imported."""

from __future__ import annotations

# Of the learning rate, after warm-up (`training.schedules.WarmupDecay`).
DECAYS = ("cosine", "linear", "rsqrt", "constant")
# Of devices (`training.distribution.devices`).
STRATEGIES = ("auto", "cpu", "mirrored", "tpu", "multiworker", "jax")
# Built-in tasks, and the class of each.
TASKS = {
    "classification": "keras_vit.tasks.classification.task:Classification",
    "multi_label": "keras_vit.tasks.multi_label.task:MultiLabel",
    "masked_autoencoder": "keras_vit.tasks.masked_autoencoder.task:MaskedAutoencoder",
    "masked_patches": "keras_vit.tasks.masked_patches.task:MaskedPatches",
}
