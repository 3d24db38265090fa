from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from keras_vit.weights import save_weights
from tests.weights.interop.torch_side import (
    TOLERANCE,
    call,
    difference,
    load_strictly,
    pixels,
    small_model,
    torch,
)

vision_transformer = pytest.importorskip(
    "torchvision.models.vision_transformer", reason="needs torchvision"
)

pytestmark = pytest.mark.slow

NORM = functools.partial(torch.nn.LayerNorm, eps=1e-3)


@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"representation_size": 17}, {"representation_size": 17}),
        ({"epsilon": 1e-3}, {"norm_layer": NORM}),
        ({"position_embedding": "sincos_2d"}, {}),
    ],
    ids=["token", "representation", "epsilon", "fixed positions"],
)
def test_torchvision_computes_the_same(
    ours: dict[str, Any], theirs: dict[str, Any], tmp_path: Path
) -> None:
    model = small_model(**ours)
    save_weights(model, tmp_path / "m.safetensors", "torchvision")
    other = vision_transformer.VisionTransformer(
        image_size=15,
        patch_size=3,
        num_layers=2,
        num_heads=4,
        hidden_dim=24,
        mlp_dim=29,
        num_classes=11,
        **theirs,
    )
    load_strictly(other, tmp_path / "m.safetensors")
    images = pixels(2, 15, 15, 3)
    assert difference(call(other, images), model(images), "torchvision") <= TOLERANCE
