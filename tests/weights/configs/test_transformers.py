from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.configs.transformers import (
    read_config,
    read_image_size,
    read_labels,
    read_preprocessing,
    write_config,
    write_preprocessing,
)
from tests.helpers import tiny_config

SQUARE = {"image_size": (15, 15), "patch_size": 3}
LABELS = tuple("abcdefghijk")


@pytest.mark.parametrize("kind", ["vit", "deit", "vit_mae"])
def test_read_config(kind: str) -> None:
    content = {
        "model_type": kind,
        "num_attention_heads": 7,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu_pytorch_tanh",
        "pooler_act": "tanh",
    }
    assert read_config(content, "m") == {"num_heads": 7, "epsilon": 1e-5, "gelu": "tanh"}
    assert read_config({"model_type": kind}, "m") == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"model_type": "swin"},
            "config.json of m must describe a model of type vit, deit, vit_mae",
        ),
        ({}, "Received: model_type=None"),
        (
            {"model_type": "vit", "hidden_act": "relu"},
            "`hidden_act` of m must be one of gelu, .* Received: hidden_act='relu'",
        ),
        (
            {"model_type": "vit", "pooler_act": "gelu"},
            r"`pooler_act` of m must be tanh\. Received: pooler_act='gelu'",
        ),
    ],
)
def test_read_config_of_another_model(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config(content, "m")


@pytest.mark.parametrize(
    ("told", "expected"),
    [({"image_size": [15, 28]}, (15, 28)), ({"image_size": 32}, (32, 32)), ({}, None)],
)
def test_read_image_size(told: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert read_image_size(told) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"0": "cat", "1": "dog", "2": "owl"}, ("cat", "dog", "owl")),
        ({"2": "owl", "0": "cat", "1": "dog"}, ("cat", "dog", "owl")),
        ({"0": "cat", "1": "dog"}, None),
        ({"0": "cat", "1": "dog", "3": "owl"}, None),
        ({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_read_labels(names: Any, expected: tuple[str, ...] | None) -> None:
    assert read_labels({"id2label": names}, 3) == expected


# As published: google/vit-base-patch16-224, facebook/deit-base-distilled-patch16-224, and one
# of CLIP's, each in the form of its time.
VIT = {"do_normalize": True, "do_resize": True, "size": 384, "resample": 2}
VIT |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
DEIT = {"crop_size": 224, "do_center_crop": True, "size": 256, "resample": 3}
DEIT |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CLIP = {"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 249}}
CLIP |= {"do_center_crop": True, "resample": 1, "do_normalize": False}


def test_read_preprocessing_of_published_files() -> None:
    base = Preprocessing(class_names=("a", "b"), crop_fraction=0.77)
    vit = read_preprocessing(VIT, base)
    assert (vit.size, vit.resize, vit.interpolation) == ((384, 384), "squash", "bilinear")
    assert (vit.mean, vit.std, vit.class_names) == ((0.5,) * 3, (0.5,) * 3, ("a", "b"))
    deit = read_preprocessing(DEIT, base)
    assert (deit.size, deit.resize, deit.crop_fraction) == ((224, 224), "squash_crop", 0.875)
    assert (deit.interpolation, deit.mean[0], deit.std[2]) == ("bicubic", 0.485, 0.225)
    clip = read_preprocessing(CLIP, base)
    assert (clip.size, clip.resize, clip.interpolation) == ((224, 224), "crop", "lanczos3")
    assert int(224 / clip.crop_fraction) == 249
    assert (clip.mean, clip.std) == ((0.0,) * 3, (1.0,) * 3)
    assert read_preprocessing({}, base) == base


@pytest.mark.parametrize(
    ("told", "factor"),
    [
        ({}, 1 / 255),
        ({"rescale_factor": 1 / 127.5}, 1 / 127.5),
        ({"do_rescale": True, "rescale_factor": 0.007}, 0.007),
        ({"do_rescale": False, "rescale_factor": 0.007}, 1.0),
    ],
)
@pytest.mark.parametrize("normalized", [True, False])
def test_pixels_are_scaled_as_the_library_does(
    told: dict[str, Any], factor: float, normalized: bool
) -> None:
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.7])
    content = {"image_mean": mean.tolist(), "image_std": std.tolist(), **told}
    content["do_normalize"] = normalized
    pixels = np.array([[[3.0, 101.0, 255.0]]])
    expected = (pixels * factor - mean) / std if normalized else pixels * factor
    found = read_preprocessing(content, Preprocessing()).scale(pixels)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_no_pixel_is_lost_to_rounding() -> None:
    for crop in (96, 160, 224, 299, 384):
        for scaled in range(crop, 2 * crop):
            content = {"do_center_crop": True, "crop_size": crop, "size": {"shortest_edge": scaled}}
            found = read_preprocessing(content, Preprocessing())
            assert int(crop / found.crop_fraction) == scaled
    content["size"] = {"shortest_edge": 200}  # smaller than its crop
    assert read_preprocessing(content, Preprocessing()).crop_fraction == 1.0


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(crop_fraction=0.9),
        Preprocessing(crop_fraction=0.875, size=96, interpolation="bilinear"),
        Preprocessing(crop_fraction=1.0, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
        Preprocessing(resize="squash", crop_fraction=0.9, interpolation="nearest"),
        Preprocessing(resize="squash_crop", crop_fraction=0.95, interpolation="lanczos3"),
    ],
    ids=lambda preprocessing: f"{preprocessing.resize} {preprocessing.interpolation}",
)
def test_preprocessing_round_trip(preprocessing: Preprocessing) -> None:
    content = json.loads(json.dumps(write_preprocessing(preprocessing)))
    found = read_preprocessing(content, Preprocessing())
    assert write_preprocessing(found) == content
    same = ("size", "resize", "interpolation", "mean", "std")
    assert all(getattr(found, name) == getattr(preprocessing, name) for name in same)
    if preprocessing.resize != "squash":
        side = preprocessing.size[0]
        assert int(side / found.crop_fraction) == int(side / preprocessing.crop_fraction)


def test_write_preprocessing() -> None:
    assert write_preprocessing(Preprocessing(crop_fraction=0.9)) == {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": 248},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def test_write_config() -> None:
    config = tiny_config(
        **SQUARE,
        distillation_token=True,
        distillation_head=True,
        qkv_bias=False,
        dropout_rate=0.1,
        attention_dropout_rate=0.2,
    )
    content = write_config(config, LABELS)
    assert content.pop("id2label") == {str(i): label for i, label in enumerate(LABELS)}
    assert content.pop("label2id") == {label: i for i, label in enumerate(LABELS)}
    assert content == {
        "architectures": ["DeiTForImageClassificationWithTeacher"],
        "model_type": "deit",
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 29,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.2,
        "layer_norm_eps": 1e-6,
        "image_size": 15,
        "patch_size": 3,
        "num_channels": 3,
        "qkv_bias": False,
    }


@pytest.mark.parametrize(
    ("changes", "architecture"),
    [
        ({}, "ViTForImageClassification"),
        ({"classes": 0}, "ViTModel"),
        ({"distillation_token": True}, "DeiTForImageClassification"),
        ({"distillation_token": True, "classes": 0}, "DeiTModel"),
    ],
)
def test_architectures(changes: dict[str, Any], architecture: str) -> None:
    content = write_config(tiny_config(**SQUARE | changes), None)
    assert content["architectures"] == [architecture]
    assert ("id2label" in content) == bool(changes.get("classes", 11))
    assert "pooler_act" not in content


def test_a_representation_layer_is_the_pooler() -> None:
    content = write_config(tiny_config(**SQUARE, classes=0, representation_size=17), None)
    assert (content["pooler_output_size"], content["pooler_act"]) == (17, "tanh")


def test_numerics_survive_config_json() -> None:
    for fields in ({"gelu": "tanh", "epsilon": 1e-12}, {"gelu": "exact", "epsilon": 1e-3}):
        content = json.loads(json.dumps(write_config(tiny_config(**SQUARE | fields), None)))
        assert read_config(content, "m") == {"num_heads": 4, **fields}


BACKBONE: dict[str, Any] = SQUARE | {"classes": 0, "mlp_dim": 48, "layer_scale": 0.1}
RELATIVE = BACKBONE | {"position_embedding": "relative", "key_bias": False}
ROTARY = BACKBONE | {"position_embedding": "rotary", "key_bias": False, "swiglu": True}


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        (BACKBONE, "dinov2", {"mlp_ratio": 2, "use_swiglu_ffn": False, "use_mask_token": False}),
        (
            BACKBONE | {"register_tokens": 3, "swiglu": True, "mlp_dim": 32},
            "dinov2_with_registers",
            {"mlp_ratio": 2, "use_swiglu_ffn": True, "num_register_tokens": 3},
        ),
        (
            ROTARY | {"num_heads": 2, "position_rescale": 2.0},
            "dinov3_vit",
            {"hidden_act": "silu", "pos_embed_rescale": 2.0, "query_bias": True},
        ),
        (
            SQUARE | {"classes": 0, "pre_norm": True, "patch_bias": False, "gelu": "quick"},
            "clip_vision_model",
            {"hidden_act": "quick_gelu", "intermediate_size": 29},
        ),
        (
            SQUARE | {"classes": 0, "class_token": False, "pooling": "map"},
            "siglip_vision_model",
            {"hidden_act": "gelu_new", "architectures": ["SiglipVisionModel"]},
        ),
        (
            RELATIVE | {"classes": 5, "pooling": "gap", "norm_after_pooling": True},
            "beit",
            {"use_mean_pooling": True, "architectures": ["BeitForImageClassification"]},
        ),
    ],
)
def test_config_of_a_backbone(fields: dict[str, Any], kind: str, expected: dict[str, Any]) -> None:
    config = tiny_config(**fields)
    content = write_config(config, None)
    assert content["model_type"] == kind
    assert {key: content[key] for key in expected} == expected
    found = read_config(content, "m")
    assert (found["num_heads"], found["epsilon"]) == (config.num_heads, config.epsilon)


def test_no_bias_of_dinov3_is_none_of_keys() -> None:
    fields = ROTARY | {"num_heads": 2, "qkv_bias": False, "key_bias": True}
    content = write_config(tiny_config(**fields), None)
    assert (content["query_bias"], content["value_bias"]) == (False, False)
    assert "key_bias" not in content  # False in the library


def test_a_width_that_is_no_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Received: mlp_dim=47\. Write"):
        write_config(tiny_config(**BACKBONE | {"mlp_dim": 47}), None)


@pytest.mark.parametrize("kind", ["siglip", "clip"])
def test_config_of_both_towers(kind: str) -> None:
    vision = {"hidden_act": "gelu", "image_size": 28, "num_attention_heads": 5}
    content = {"model_type": kind, "vision_config": vision, "hidden_act": "none"}
    assert read_config(content, "m") == {"num_heads": 5, "gelu": "exact"}
    assert read_image_size(content) == (28, 28)


def test_other_bases_of_rotary_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`rope_theta` of m must be 100\.0\. Received: .*=10"):
        read_config({"model_type": "dinov3_vit", "rope_theta": 10.0}, "m")
    gated = {"model_type": "dinov3_vit", "use_gated_mlp": True}
    assert read_config(gated | {"hidden_act": "silu"}, "m") == {"gelu": "exact"}
    with pytest.raises(ValueError, match="`hidden_act` of m must be one of silu"):
        read_config(gated | {"hidden_act": "gelu"}, "m")
