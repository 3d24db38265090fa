from __future__ import annotations

from typing import Any

import pytest

from keras_vit.constants import IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.weights.checkpoint import Checkpoint, Origin
from keras_vit.weights.dialects.default_preprocessing import preprocessing

HALF = (0.5, 0.5, 0.5)


def defaults(dialect: str, **inferred: Any) -> Preprocessing:
    return preprocessing(Checkpoint("a", {}, inferred, origin=Origin(dialect)))


@pytest.mark.parametrize(
    ("dialect", "inferred", "mean", "std"),
    [
        ("npz", {}, HALF, HALF),
        ("timm", {}, HALF, HALF),
        ("timm", {"distillation_token": True}, IMAGENET_MEAN, IMAGENET_STD),
        ("huggingface", {}, HALF, HALF),
        ("huggingface", {"distillation_token": True}, IMAGENET_MEAN, IMAGENET_STD),
        ("torchvision", {}, IMAGENET_MEAN, IMAGENET_STD),
        ("torchvision", {"channels": 1}, (0.5,), (0.5,)),
        ("timm", {"channels": 1, "distillation_token": True}, (0.5,), (0.5,)),
    ],
)
def test_pixels_as_each_source_scales_them(
    dialect: str, inferred: dict[str, Any], mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    preprocessing = defaults(dialect, **inferred)
    assert (preprocessing.mean, preprocessing.std) == (tuple(mean), tuple(std))
    assert preprocessing.channels == ("grayscale" if inferred.get("channels") == 1 else "rgb")


def test_crop_and_filter_of_each_source() -> None:
    for dialect in ("npz", "timm", "huggingface"):
        preprocessing = defaults(dialect)
        assert (preprocessing.resize, preprocessing.crop_fraction) == ("crop", 0.9)
        assert preprocessing.interpolation == "bicubic"
    preprocessing = defaults("torchvision")
    assert (preprocessing.resize, preprocessing.crop_fraction) == ("crop", 224 / 256)
    assert preprocessing.interpolation == "bilinear"


@pytest.mark.parametrize("classes", [0, 999, 21843, None])
def test_labels_are_those_of_imagenet_if_there_are_as_many(classes: int | None) -> None:
    assert defaults("timm", classes=1000).class_names == imagenet_labels()
    assert defaults("timm", **{} if classes is None else {"classes": classes}).class_names is None
