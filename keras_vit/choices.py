"""Values of options, for commands that check them before Keras is imported."""

from __future__ import annotations

# Of the learning rate, after warm-up (`training.schedules.WarmupDecay`).
DECAYS = ("cosine", "linear", "rsqrt", "constant")
# Of devices (`training.distribution.devices`).
STRATEGIES = ("auto", "cpu", "mirrored", "tpu", "multiworker", "jax")
# Built-in tasks, and the class of each. The others need no labels (`keras-vit pretrain`).
TASKS = {
    "classification": "keras_vit.tasks.classification.task:Classification",
    "multi_label": "keras_vit.tasks.multi_label.task:MultiLabel",
}
PRETRAINING_TASKS = {
    "masked_autoencoder": "keras_vit.tasks.masked_autoencoder.task:MaskedAutoencoder",
    "masked_patches": "keras_vit.tasks.masked_patches.task:MaskedPatches",
}
# Entry points by which other packages add tasks.
TASK_GROUP = "keras_vit.tasks"


def task_names() -> tuple[str, ...]:
    """Returns the names of the tasks that train on labelled images."""
    from importlib import metadata

    return (*TASKS, *(entry.name for entry in metadata.entry_points(group=TASK_GROUP)))
