from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit.weights import load_weights, read_checkpoint, save_weights
from keras_vit.weights.containers.safetensors import read_safetensors
from keras_vit.zoo import ViTR26S32, ViTRTi16, ViTTi16
from tests.helpers import randomise
from tests.weights.interop.torch_side import (
    NPZ,
    TIMM,
    TOLERANCE,
    call,
    difference,
    load_strictly,
    pixels,
    small_model,
    torch,
)

timm = pytest.importorskip("timm", reason="needs timm")
from timm.layers import LayerNorm  # noqa: E402
from timm.models._manipulate import adapt_input_conv  # noqa: E402
from timm.models.deit import VisionTransformerDistilled  # noqa: E402
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn  # noqa: E402

pytestmark = pytest.mark.slow

GAP = {"class_token": False, "pooling": "gap"}
DISTILLED = {"distillation_token": True, "distillation_head": True}
# Fields of ours, and arguments of timm.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token": ({}, {}),
    "tanh": ({"gelu": "tanh"}, {"act_layer": "gelu_tanh"}),
    "epsilon": ({"epsilon": 1e-3}, {"norm_layer": functools.partial(LayerNorm, eps=1e-3)}),
    "gap": (GAP | {"norm_after_pooling": True}, {"class_token": False, "global_pool": "avg"}),
    "gap of a model with class token": (
        {"pooling": "gap"},
        {"global_pool": "avg", "fc_norm": False},
    ),
    "max": ({"pooling": "max", "norm_after_pooling": True}, {"global_pool": "max"}),
    "map": (GAP | {"pooling": "map"}, {"class_token": False, "global_pool": "map"}),
    "registers": (
        {"register_tokens": 5, "prefix_position": False, "layer_scale": 0.1},
        {"reg_tokens": 5, "no_embed_class": True, "init_values": 0.1},
    ),
    "clip": (
        {"pre_norm": True, "patch_bias": False, "epsilon": 1e-5},
        {"pre_norm": True, "norm_layer": functools.partial(LayerNorm, eps=1e-5)},
    ),
    "no qkv bias": ({"qkv_bias": False}, {"qkv_bias": False}),
    "no head": ({"classes": 0}, {"num_classes": 0}),
    "fixed positions": ({"position_embedding": "sincos_2d"}, {}),
    "one channel": ({"channels": 1}, {"in_chans": 1}),
    "wide": ({"image_size": (15, 21)}, {"img_size": (15, 21)}),
}


def small_timm(kind: Any = VisionTransformer, **arguments: Any) -> Any:
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 4, "mlp_ratio": 29 / 24}
    fields = {"img_size": 15, "patch_size": 3, "num_classes": 11, **sizes}
    return kind(**fields | arguments)


@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize(("ours", "theirs"), VARIANTS.values(), ids=VARIANTS)
def test_timm_computes_the_same(
    ours: dict[str, Any], theirs: dict[str, Any], tmp_path: Path
) -> None:
    model = small_model(**ours)
    save_weights(model, tmp_path / "m.safetensors", "timm")
    other = load_strictly(small_timm(**theirs), tmp_path / "m.safetensors")
    height, width = model.input_shape[1:3]
    images = pixels(2, height, width, model.input_shape[3])
    assert difference(call(other, images), model(images), "timm") <= TOLERANCE


def test_timm_computes_the_same_with_a_teacher(tmp_path: Path) -> None:
    model = small_model(**DISTILLED)
    save_weights(model, tmp_path / "m.safetensors", "timm")
    other = load_strictly(small_timm(VisionTransformerDistilled), tmp_path / "m.safetensors")
    images = pixels(2, 15, 15, 3)
    assert difference(call(other, images), model(images), "timm distilled") <= TOLERANCE


@pytest.mark.filterwarnings("ignore:The format")
def test_timm_computes_the_same_with_published_weights(test_data: Path, tmp_path: Path) -> None:
    model = ViTTi16(weights=test_data / "weights" / NPZ, classifier_activation=None)
    save_weights(model, tmp_path / "m.safetensors", "timm")
    other = timm.create_model("vit_tiny_patch16_224", act_layer="gelu_tanh")
    load_strictly(other, tmp_path / "m.safetensors")
    images = pixels(2, 224, 224, 3)
    assert difference(call(other, images), model(images), "timm Ti/16") <= TOLERANCE


@pytest.mark.filterwarnings("ignore:The format")
@pytest.mark.parametrize(
    ("constructor", "name"),
    [(ViTRTi16, "vit_tiny_r_s16_p8_224"), (ViTR26S32, "vit_small_r26_s32_224")],
)
def test_timm_computes_nearly_the_same_with_a_hybrid(
    constructor: Any, name: str, tmp_path: Path
) -> None:
    """Its group norms add another number to the variance, and its standardised kernels too."""
    model = constructor(weights=None, classes=11, classifier_activation=None)
    save_weights(randomise(model, scale=0.02), tmp_path / "m.safetensors", "timm")
    other = timm.create_model(name, num_classes=11, act_layer="gelu_tanh")
    load_strictly(other, tmp_path / "m.safetensors")
    images = pixels(1, 224, 224, 3)
    assert difference(call(other, images), model(images), name) <= 1e-4  # measured: 1.2e-05
    again = constructor(weights=tmp_path / "m.safetensors", classes=11, classifier_activation=None)
    np.testing.assert_array_equal(again(images), model(images))


@pytest.mark.filterwarnings("ignore:Position embeddings", "ignore:Input kernel adapted")
@pytest.mark.parametrize("channels", [3, 1, 4])
@pytest.mark.parametrize("size", [(384, 384), (224, 320), (160, 96), (224, 224)], ids=str)
def test_resizing_is_that_of_timm(size: tuple[int, int], channels: int, test_data: Path) -> None:
    path = test_data / "weights" / TIMM
    model = ViTTi16(weights=path, input_shape=(*size, channels), classifier_activation=None)
    state = {name: torch.from_numpy(tensor) for name, tensor in read_safetensors(path).items()}
    kernel = "patch_embed.proj.weight"
    state[kernel] = adapt_input_conv(channels, state[kernel])  # as timm's loader does
    other = timm.create_model("vit_tiny_patch16_224", img_size=size, in_chans=channels)
    other.load_state_dict(checkpoint_filter_fn(state, other), strict=True)
    images = pixels(1, *size, channels)
    what = f"timm at {size} with {channels} channels"
    assert difference(call(other, images), model(images), what) <= 1e-4  # measured: 1.4e-05


@pytest.mark.parametrize("wrapper", [None, "model", "state_dict"])
def test_a_file_of_pytorch_is_read_to_the_bit(wrapper: str | None, tmp_path: Path) -> None:
    other = small_timm()
    state = other.state_dict()
    torch.save({wrapper: state} if wrapper else state, tmp_path / "m.pth")
    checkpoint = read_checkpoint(tmp_path / "m.pth")
    assert checkpoint.dialect == "timm"
    model = small_model()
    load_weights(model, checkpoint)
    save_weights(model, tmp_path / "m.safetensors", "timm")
    again = read_safetensors(tmp_path / "m.safetensors")
    assert again.keys() == state.keys()
    for name, tensor in state.items():
        np.testing.assert_array_equal(again[name], tensor.numpy(), err_msg=name)
    images = pixels(2, 15, 15, 3)
    assert difference(call(other, images), model(images), "timm .pth") <= TOLERANCE
