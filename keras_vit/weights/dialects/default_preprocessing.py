"""Default preprocessing for the weights of each library, if a file does not specify it."""

from __future__ import annotations

from typing import Any

from keras_vit.constants import IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.weights.checkpoint import Checkpoint


def preprocessing(checkpoint: Checkpoint) -> Preprocessing:
    """Returns the most common preprocessing in the library that a checkpoint comes from.

    Official and most timm weights were trained on pixels in [-1, 1]; torchvision weights and those
    with a distillation token (DeiT) on pixels normalized by ImageNet's mean and standard deviation.
    Classifiers with 1000 classes get the ImageNet class names. A configuration file or the registry
    overrides these values.
    """
    inferred = checkpoint.inferred
    labels = imagenet_labels()
    grayscale = inferred.get("channels") == 1
    fields: dict[str, Any] = {
        "crop_fraction": 0.9,  # as in timm's evaluation at 224 pixels
        "interpolation": "bicubic",
        "channels": "grayscale" if grayscale else "rgb",
        "class_names": labels if inferred.get("classes") == len(labels) else None,
    }
    if checkpoint.origin.dialect == "torchvision":
        fields |= {"crop_fraction": 0.875, "interpolation": "bilinear"}  # 256 and 224 pixels
    normalized = checkpoint.origin.dialect == "torchvision" or inferred.get("distillation_token")
    if normalized and not grayscale:
        fields |= {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    return Preprocessing(**fields)
