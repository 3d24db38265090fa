"""Labelled images: finding, checking, dividing and batching them (needs TensorFlow)."""

from keras_vit.data.audit import Audit, audit, readable_images, usable_images
from keras_vit.data.augmentation import Augmentation, random_flip, random_resized_crop
from keras_vit.data.augmentation_layers import write_layers
from keras_vit.data.check import DataCheck, check
from keras_vit.data.examples import SPLITS, Examples
from keras_vit.data.pipelines import evaluation_dataset, image_dataset
from keras_vit.data.pixels import decode, fit, prepare, scale
from keras_vit.data.sources import load
from keras_vit.data.splits import (
    read_split,
    require_trainable,
    split,
    write_split,
)
from keras_vit.data.training_pipeline import steps_per_epoch, training_dataset

__all__ = [
    "SPLITS",
    "Audit",
    "Augmentation",
    "DataCheck",
    "Examples",
    "audit",
    "check",
    "decode",
    "evaluation_dataset",
    "fit",
    "image_dataset",
    "load",
    "prepare",
    "random_flip",
    "random_resized_crop",
    "read_split",
    "readable_images",
    "require_trainable",
    "scale",
    "split",
    "steps_per_epoch",
    "training_dataset",
    "usable_images",
    "write_layers",
    "write_split",
]
