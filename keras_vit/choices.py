"""Values of options, for commands that check them before Keras is imported."""

from __future__ import annotations

from typing import Literal, get_args

# What to do with images that do not decode (`data.image_audit`).
OnBadImage = Literal["fail", "skip"]
# Of a recipe (`runs.recipe`).
Optimizer = Literal["adamw", "sgd", "lion", "adafactor"]
Precision = Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"]
# Of the learning rate, after warm-up (`training.schedules.WarmupDecay`).
DECAYS = ("cosine", "linear", "rsqrt", "constant")
# Of devices (`training.distribution.devices`).
Strategy = Literal["auto", "cpu", "mirrored", "tpu", "multiworker", "jax"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# Of training without labels (`runs.config`).
Method = Literal["mae", "masked-patches"]
# Whose file of weights to write (`weights.save`).
Format = Literal["npz", "timm", "huggingface", "torchvision", "keras"]
# Values of pixels that a model of another library was trained on (`doctor.scaling_candidates`).
Pixels = Literal["0..255", "0..1", "-1..1", "imagenet", "caffe"]
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
