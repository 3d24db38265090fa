"""Common pixel scalings that a model may have been trained with."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from keras_vit import arguments
from keras_vit.constants import IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing

PREPARED = "as prepared"
TWICE = "scaled twice"
REVERSED = "reversed channels"
# Mean of ResNet50 and VGG16 in keras.applications (imagenet_utils.py there, mode "caffe").
_CAFFE_MEAN = (103.939 / 255, 116.779 / 255, 123.68 / 255)
# Fields of `Preprocessing` by the values of `keras-vit doctor --pixels`.
SCALES: dict[str, dict[str, Any]] = {
    "0..255": {"mean": 0.0, "std": 1 / 255},
    "0..1": {"mean": 0.0, "std": 1.0},
    "-1..1": {"mean": 0.5, "std": 0.5},
    "imagenet": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    "caffe": {"mean": _CAFFE_MEAN, "std": 1 / 255, "channels": "bgr"},
}


def scaled(preprocessing: Preprocessing, pixels: str) -> Preprocessing:
    """Returns a copy of a preprocessing with a different pixel scaling."""
    arguments.one_of("pixels", pixels, tuple(SCALES))
    if not _fits(pixels, preprocessing):
        raise ValueError(
            f"`pixels` must be a pixel scaling for {preprocessing.num_channels} channels, like "
            f"the model. Received: pixels={pixels!r}"
        )
    return dataclasses.replace(preprocessing, **SCALES[pixels])


def candidates(preprocessing: Preprocessing) -> dict[str, Preprocessing]:
    """Returns a preprocessing and all alternatives that the model may have been trained with."""
    mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
    twice: dict[str, Any] = {"mean": tuple(mean + 255 * std * mean), "std": tuple(255 * std**2)}
    others = {name: scaled(preprocessing, name) for name in SCALES if _fits(name, preprocessing)}
    others[TWICE] = dataclasses.replace(preprocessing, **twice)
    scalings = {PREPARED: preprocessing}
    for name, other in others.items():
        if not (np.allclose(other.mean, mean) and np.allclose(other.std, std)):
            scalings[name] = other
    if preprocessing.num_channels == 3:
        channels = "rgb" if preprocessing.channels == "bgr" else "bgr"
        scalings[REVERSED] = dataclasses.replace(preprocessing, channels=channels)
    return scalings


def _fits(name: str, preprocessing: Preprocessing) -> bool:
    return np.size(SCALES[name]["mean"]) in (1, preprocessing.num_channels)
