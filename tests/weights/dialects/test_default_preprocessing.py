from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_vit.constants import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.dialects.default_preprocessing import assume, preprocessing
from keras_vit.weights.positions import POSITIONS

HALF = (0.5, 0.5, 0.5)
# Fields of files of DINOv2 and DeiT III; a model of timm whose patches are averaged has no token.
SCALED = {"layer_scale": 1e-5, "class_token": True}
AVERAGED = {"layer_scale": 1e-5, "class_token": False, "pooling": "gap"}
FIXED = np.stack([np.zeros(6), np.ones(6)])  # MAE's class token has the position 0


def defaults(dialect: str, **inferred: Any) -> Preprocessing:
    return preprocessing(Checkpoint("a", {}, inferred, dialect=dialect))


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
        ("timm", SCALED, IMAGENET_MEAN, IMAGENET_STD),
        ("timm", SCALED | {"register_tokens": 4}, IMAGENET_MEAN, IMAGENET_STD),
        ("timm", SCALED | {"classes": 1000}, IMAGENET_MEAN, IMAGENET_STD),
        ("timm", AVERAGED, HALF, HALF),
        ("timm", {"pre_norm": True}, CLIP_MEAN, CLIP_STD),
        ("timm", {"pre_norm": True, "channels": 1}, (0.5,), (0.5,)),
        ("timm", {"pooling": "map"}, HALF, HALF),  # SigLIP
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


def test_crop_of_models_by_their_tensors() -> None:
    assert defaults("timm", **SCALED).crop_fraction == 1.0  # DINOv2
    assert defaults("timm", **SCALED, classes=1000).crop_fraction == 0.9  # DeiT III
    assert defaults("timm", pre_norm=True).crop_fraction == 1.0


@pytest.mark.parametrize(
    ("dialect", "positions", "left", "mean"),
    [
        ("timm", FIXED, (), IMAGENET_MEAN),
        ("huggingface", FIXED, (), IMAGENET_MEAN),
        ("tf_transformers", FIXED, (), IMAGENET_MEAN),
        ("npz", FIXED, (), HALF),
        ("timm", FIXED + 1, (), HALF),
        ("timm", FIXED + 1, ("decoder_embed.weight", "mask_token"), IMAGENET_MEAN),
        ("huggingface", FIXED + 1, ("decoder.decoder_embed.bias",), IMAGENET_MEAN),
        ("huggingface", FIXED + 1, ("decoder.0.weight",), HALF),  # SimMIM
    ],
)
def test_masked_autoencoders_by_their_positions_or_decoder(
    dialect: str, positions: np.ndarray, left: tuple[str, ...], mean: tuple[float, ...]
) -> None:
    tensors = {POSITIONS: positions}
    checkpoint = Checkpoint("a", tensors, {"class_token": True}, dialect=dialect, ignored=left)
    assert preprocessing(checkpoint).mean == mean


def test_assumed_values_are_noted() -> None:
    """Only for libraries whose weights differ in their preprocessing."""
    for dialect in ("timm", "huggingface", "tf_transformers"):
        found = assume(Checkpoint("a", {}, SCALED, dialect=dialect, notes={"prefix": "b"}))
        assert found.preprocessing == defaults(dialect, **SCALED)
        assert found.notes == {
            "prefix": "b",
            "preprocessing": "a does not contain its preprocessing: mean=(0.485, 0.456, 0.406), "
            "std=(0.229, 0.224, 0.225), crop_fraction=1.0 are assumed; to change them, store the "
            "publisher's config.json or preprocessor_config.json beside the file",
        }
    for dialect in ("npz", "torchvision", "vit_keras"):
        assert assume(Checkpoint("a", {}, {}, dialect=dialect)).notes == {}


@pytest.mark.parametrize("classes", [0, 999, 21843, None])
def test_labels_are_those_of_imagenet_if_there_are_as_many(classes: int | None) -> None:
    assert defaults("timm", classes=1000).class_names == imagenet_labels()
    assert defaults("timm", **{} if classes is None else {"classes": classes}).class_names is None
