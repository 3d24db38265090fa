"""Allowed values of command-line options, available without importing Keras."""

from __future__ import annotations

from typing import Literal, get_args

# Treatment of images that cannot be decoded (`data.image_audit`).
OnBadImage = Literal["fail", "skip"]
OnBadBox = Literal["drop", "fail"]
# Optimizer and precision of a recipe (`runs.recipe`).
Optimizer = Literal["adamw", "sgd", "lion", "adafactor"]
Precision = Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"]
# Learning-rate decay after warm-up (`training.schedules.WarmupDecay`).
DECAYS = ("cosine", "linear", "rsqrt", "constant")
# Pooling of tokens (`layers.pooling`).
TOKEN_POOLINGS = ("token", "gap", "max", "token_gap")
# Distribution strategy (`training.distribution.devices`).
Strategy = Literal["auto", "cpu", "mirrored", "tpu", "multiworker", "jax"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# Self-supervised method (`runs.config`).
Method = Literal["mae", "masked-patches"]
# Where `keras-vit predict` computes (`export.ray_engine`).
Engine = Literal["ray"]
# Weight file formats (`weights.save`).
Format = Literal["npz", "timm", "huggingface", "torchvision", "keras"]
# Pixel ranges of models of other libraries (`doctor.scaling_candidates`).
Pixels = Literal["0..255", "0..1", "-1..1", "imagenet", "caffe"]
# Built-in tasks and their classes. Pretraining tasks need no labels (`keras-vit pretrain`).
TASKS = {
    "classification": "keras_vit.tasks.classification.task:Classification",
    "multi_label": "keras_vit.tasks.multi_label.task:MultiLabel",
    "regression": "keras_vit.tasks.regression.task:Regression",
    "detection": "keras_vit.tasks.detection.task:Detection",
    "segmentation": "keras_vit.tasks.segmentation.task:Segmentation",
}
PRETRAINING_TASKS = {
    "masked_autoencoder": "keras_vit.tasks.masked_autoencoder.task:MaskedAutoencoder",
    "masked_patches": "keras_vit.tasks.masked_patches.task:MaskedPatches",
}
# Entry points by which other packages add tasks.
TASK_GROUP = "keras_vit.tasks"


def task_names() -> tuple[str, ...]:
    """Returns the names of all tasks that use labeled images, including those of plugins."""
    from importlib import metadata

    return (*TASKS, *(entry.name for entry in metadata.entry_points(group=TASK_GROUP)))
