from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_vit
from keras_vit.data.decode_and_resize import resize_and_crop, scale
from keras_vit.weights import read_checkpoint
from tests.helpers import randomise
from tests.weights.migration.foreign_packages import (
    TOLERANCE_OF_REAL_SIZES,
    assert_same_logits,
    images_of,
    rebuilt,
)

keras_hub = pytest.importorskip("keras_hub", reason="needs keras-hub")

pytestmark = pytest.mark.slow

SIZES = {
    "image_shape": (15, 14, 3),
    "patch_size": (3, 2),
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 24,
    "layer_norm_epsilon": 1e-5,
}
VIT = {**SIZES, "mlp_dim": 29}
DEIT = {**SIZES, "intermediate_dim": 29}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("ViT", VIT, {}),
    "representation": ("ViT", VIT, {"intermediate_dim": 17}),
    "softmax": ("ViT", VIT, {"activation": "softmax"}),
    "no class token": ("ViT", {**VIT, "use_class_token": False}, {"pooling": "gap"}),
    "no patch bias": ("ViT", {**VIT, "use_patch_bias": False}, {}),
    "11 blocks": ("ViT", {**VIT, "num_layers": 11}, {}),
    "large epsilon": ("ViT", {**VIT, "layer_norm_epsilon": 0.1}, {}),
    "deit": ("DeiT", DEIT, {}),
}


def classifier(kind: str, backbone: dict[str, Any], task: dict[str, Any]) -> Any:
    built = getattr(keras_hub.models, f"{kind}Backbone")(**backbone)
    model = getattr(keras_hub.models, f"{kind}ImageClassifier")(built, num_classes=11, **task)
    return randomise(model)


@pytest.mark.parametrize("case", CASES)
def test_preset(case: str, tmp_path: Path) -> None:
    kind, backbone, task = CASES[case]
    theirs = classifier(kind, backbone, task)
    theirs.save_to_preset(str(tmp_path / "preset"))
    model = rebuilt(tmp_path / "preset", classifier_activation=task.get("activation"))
    assert_same_logits(model, images_of(15, 14), theirs(images_of(15, 14)))


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_file(name: str, tmp_path: Path) -> None:
    kind, backbone, task = CASES["representation"]
    theirs = classifier(kind, {**backbone, "layer_norm_epsilon": 1e-6}, task)
    (theirs.save if name == "m.keras" else theirs.save_weights)(tmp_path / name)
    model = rebuilt(tmp_path / name, image_size=(15, 14))
    assert_same_logits(model, images_of(15, 14), theirs(images_of(15, 14)))


def test_backbone(tmp_path: Path) -> None:
    theirs = randomise(keras_hub.models.ViTBackbone(**VIT))
    theirs.save_to_preset(str(tmp_path / "preset"))
    model = rebuilt(tmp_path / "preset", pooling="none")
    assert_same_logits(model, images_of(15, 14), theirs(images_of(15, 14)))


def test_real_size_through_the_constructor(tmp_path: Path) -> None:
    sizes = {"num_layers": 12, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768}
    backbone = {"image_shape": (96, 96, 3), "patch_size": 16, "layer_norm_epsilon": 1e-12, **sizes}
    built = keras_hub.models.ViTBackbone(**backbone)
    theirs = randomise(keras_hub.models.ViTImageClassifier(built, num_classes=11), scale=0.03)
    theirs.save_to_preset(str(tmp_path / "preset"))
    model = keras_vit.ViTTi16(weights=tmp_path / "preset", classes=11, classifier_activation=None)
    assert model.input_shape == (None, 96, 96, 3)
    images = images_of(96, 96)
    assert_same_logits(model, images, theirs(images), TOLERANCE_OF_REAL_SIZES)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_preprocessing(interpolation: str, whole: bool, tmp_path: Path) -> None:
    converter = keras_hub.layers.ViTImageConverter(
        image_size=(30, 28),
        scale=[1 / (255 * std) for std in (0.229, 0.224, 0.225)],
        offset=[-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225],
        interpolation=interpolation,
        antialias=True,
        crop_to_aspect_ratio=whole,
    )
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    task = {"num_classes": 11, "preprocessor": preprocessor}
    theirs = keras_hub.models.ViTImageClassifier(keras_hub.models.ViTBackbone(**VIT), **task)
    theirs.save_to_preset(str(tmp_path / "preset"))
    preprocessing = read_checkpoint(tmp_path / "preset").preprocessing
    image = np.random.default_rng(7).integers(0, 256, (60, 84, 3)).astype("uint8")
    found = scale(resize_and_crop(image, preprocessing), preprocessing).numpy()
    expected = np.asarray(converter(image))
    # It crops before it resizes, so pixels at the border of the crop lack neighbors there; and
    # it cuts gray levels of bilinear images down to whole ones, where we round.
    border = slice(3, -3) if whole else slice(None)
    levels = np.abs(found - expected)[:, border].max() * 255 * 0.224
    print(f"largest difference {levels:.2f} gray levels")
    assert levels < (1.01 if interpolation == "bilinear" else 0.01)
