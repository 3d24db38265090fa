"""Labeled image datasets: loading, auditing, splitting and input pipelines (needs TensorFlow)."""

from keras_vit.data.augmentation import Augmentation, random_flip, random_resized_crop
from keras_vit.data.dataset_report import DatasetReport, check
from keras_vit.data.decode_and_resize import decode, prepare, resize_and_crop, scale
from keras_vit.data.examples import SPLITS, Examples
from keras_vit.data.image_audit import ImageAudit, audit, readable_images, usable_images
from keras_vit.data.keras_layers import write_layers
from keras_vit.data.pipeline import UNREADABLE, evaluation_dataset, image_dataset
from keras_vit.data.sources.load import load
from keras_vit.data.splits import read_split, require_trainable, split, write_split
from keras_vit.data.training_pipeline import steps_per_epoch, training_dataset

__all__ = [
    "SPLITS",
    "UNREADABLE",
    "Augmentation",
    "DatasetReport",
    "Examples",
    "ImageAudit",
    "audit",
    "check",
    "decode",
    "evaluation_dataset",
    "image_dataset",
    "load",
    "prepare",
    "random_flip",
    "random_resized_crop",
    "read_split",
    "readable_images",
    "require_trainable",
    "resize_and_crop",
    "scale",
    "split",
    "steps_per_epoch",
    "training_dataset",
    "usable_images",
    "write_layers",
    "write_split",
]
