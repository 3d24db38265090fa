"""Weight names and layouts of Transformers' DINOv2, DINOv3, SigLIP, CLIP and BEiT.

In files of SigLIP and CLIP, the text tower is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import NORM_AFTER_POOLING, Dialect, Row, exact_gelu, renamed
from keras_vit.weights.dialects.huggingface import EMBEDDING, LAYERS
from keras_vit.weights.dialects.rows import ALL_TORCH, TORCH, group, norm

_LAYER = "encoder.layer.{block}."
_SCALES = ("layer_scale1.lambda1", "layer_scale2.lambda1")
_GATED = {"gated": lambda config: config.swiglu}


def _dinov2_fields(inferred: Mapping[str, Any]) -> dict[str, Any]:
    kind = "bicubic_antialiased" if inferred["register_tokens"] else "bicubic"
    return {"gelu": "exact", "epsilon": 1e-6, "position_interpolation": kind}


_DINOV2_EMBEDDING = (*EMBEDDING[:3], "", "register_tokens")
_DINOV2_BLOCK = ("norm1", *LAYERS[1:3], "norm2", "mlp.fc1", "mlp.fc2")
_DINOV2_GATED = ("", "", "", "", "mlp.weights_in", "mlp.weights_out")

# models/dinov2 and models/dinov2_with_registers of https://github.com/huggingface/transformers,
# release 5.23, as all below.
DINOV2 = Dialect(
    "dinov2",
    "Hugging Face (DINOv2)",
    (
        *group("embedding", _DINOV2_EMBEDDING, ALL_TORCH, scope="embeddings/"),
        Row("patch_encoder/mask_token", "embeddings.mask_token", "1D -> 11D", "mask token"),
        *group("block", _DINOV2_BLOCK, ALL_TORCH, scope=_LAYER, optional=("qkv bias",)),
        *group("block", _DINOV2_GATED, ALL_TORCH, scope=_LAYER, part="gated"),
        *group("scales", _SCALES, ALL_TORCH, scope=_LAYER),
        *group("top", ("layernorm",), ALL_TORCH),
    ),
    required_names=("embeddings.cls_token", "encoder.layer.0.layer_scale1.lambda1"),
    format="huggingface",
    supports=lambda config: config.position_embedding == "learned" and bool(config.layer_scale),
    alternatives=_GATED,
    implied_fields=_dinov2_fields,
    ignored=(r"classifier\..*",),
    normalize=renamed(lambda name: re.sub(r"^dinov2(_with_registers)?\.", "", name)),
    no_register_rows=True,
    notes={
        r"classifier\..*": "the classifier of the class token and the mean of the patches, in one "
        "vector, is not read; the model returns the class token"
    },
)

_DINOV3_EMBEDDING = ("cls_token", "", "patch_embeddings", "", "register_tokens", "mask_token")
_DINOV3_ATTENTION = (tuple(f"attention.{x}_proj" for x in "qkv"), "attention.o_proj")
_DINOV3_BLOCK = ("norm1", *_DINOV3_ATTENTION, "norm2", "mlp.up_proj", "mlp.down_proj")
_DINOV3_GATED = ("", "", "", "", ("mlp.gate_proj", "mlp.up_proj"))

DINOV3 = Dialect(
    "dinov3_vit",
    "Hugging Face (DINOv3)",
    (
        *group("embedding", _DINOV3_EMBEDDING, ALL_TORCH, scope="embeddings/"),
        *group("block", _DINOV3_BLOCK, ALL_TORCH, scope="layer.{block}.", key_bias=False),
        *group("block", _DINOV3_GATED, ALL_TORCH, scope="layer.{block}.", part="gated"),
        *group("scales", _SCALES, ALL_TORCH, scope="layer.{block}."),
        *group("top", ("norm",), ALL_TORCH),
    ),
    required_names=("embeddings.cls_token", "layer.0.layer_scale1.lambda1"),
    format="huggingface",
    supports=lambda config: config.position_embedding == "rotary" and bool(config.layer_scale),
    alternatives=_GATED,
    in_attention=("rotary",),
    implied_fields=exact_gelu(epsilon=1e-5, position_embedding="rotary", position_rescale=2.0),
    normalize=renamed(lambda name: re.sub(r"^model\.layer\.", "layer.", name)),
)

_TOWER = "vision_model/"
_PATCHES = ("", "", "embeddings/patch_embedding")
_HEAD = "vision_model.head.attention."
_CLIP_ATTENTION = (tuple(f"self_attn/{x}_proj" for x in "qkv"), "self_attn/out_proj")
_CLIP_LAYERS = ("layer_norm1", *_CLIP_ATTENTION, "layer_norm2", "mlp/fc1", "mlp/fc2")
_CLIP_POOLING = (
    *("probe", "attention/q", ("attention/k", "attention/v"), "attention/out_proj", "layernorm"),
    *("mlp/fc1", "mlp/fc2"),
)
# Models without the text tower are saved without `vision_model`.
_BARE = re.compile(r"(embeddings|encoder|pre_layrnorm|post_layernorm|head)\.")
_EMBEDDINGS = "vision_model.embeddings."


def _clip_fields(inferred: Mapping[str, Any]) -> dict[str, Any]:
    gelu, epsilon = ("quick", 1e-5) if inferred["class_token"] else ("tanh", 1e-6)
    return {"gelu": gelu, "epsilon": epsilon, "position_interpolation": "bicubic"}


CLIP = Dialect(
    "clip",
    "Hugging Face (CLIP, SigLIP)",
    (
        Row("patch_encoder/class_token", f"{_EMBEDDINGS}class_embedding", "D -> 11D", "clip"),
        Row("patch_encoder/positions", f"{_EMBEDDINGS}position_embedding.weight", "TD"),
        *group("embedding", _PATCHES, ALL_TORCH, scope=_TOWER, optional=("patch bias",)),
        *norm("pre_norm", "vision_model.pre_layrnorm", TORCH, "clip"),
        *group("block", _CLIP_LAYERS, ALL_TORCH, scope=f"{_TOWER}encoder/layers/{{block}}/"),
        *group("pooling", _CLIP_POOLING, ALL_TORCH, scope=f"{_TOWER}head/"),
        *group("top", ("post_layernorm",), ALL_TORCH, scope=_TOWER),
    ),
    required_names=tuple(f"{_EMBEDDINGS}{x}_embedding.weight" for x in ("patch", "position")),
    format="huggingface",
    supports=lambda config: (
        config.pre_norm == config.class_token == (not config.patch_bias)
        and config.pooling == ("token" if config.class_token else "map")
    ),
    implied_fields=_clip_fields,
    ignored=(
        *(r"text_model\..*", r"logit_(scale|bias)", r"(visual|text)_projection\.weight"),
        *(r".*\.position_ids", r"classifier\..*"),
    ),
    normalize=renamed(lambda name: f"vision_model.{name}" if _BARE.match(name) else name),
    packed={
        f"{_HEAD}in_proj_{kind}": tuple(f"{_HEAD}{x}.{kind}" for x in "qkv")
        for kind in ("weight", "bias")
    },
    notes={
        r"visual_projection\.weight": "the projection to the space that images and texts share is "
        "not read; the model returns the vector before it",
        r"classifier\..*": "the classifier of the mean of the patches is not read",
    },
)

_TABLE = "relative_position_bias.relative_position_bias_table"
_BEIT_TABLE = f"attention.attention.{_TABLE}"
_BEIT_EMBEDDING = ("cls_token", "", EMBEDDING[2], "", "", "mask_token")


def _beit_names(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Gives each block its own copy of a table that all blocks share."""
    named = {name.removeprefix("beit."): (name, tensor) for name, tensor in tensors.items()}
    if f"encoder.{_TABLE}" in named and f"encoder.layer.0.{_BEIT_TABLE}" not in named:
        shared = named.pop(f"encoder.{_TABLE}")
        layers = {match[0] for name in named if (match := re.match(r"encoder\.layer\.\d+\.", name))}
        named |= {f"{layer}{_BEIT_TABLE}": shared for layer in layers}
    return named


BEIT = Dialect(
    "beit",
    "Hugging Face (BEiT)",
    (
        *group("embedding", _BEIT_EMBEDDING, ALL_TORCH, scope="embeddings/"),
        *group("block", LAYERS, ALL_TORCH, scope=_LAYER, key_bias=False),
        *group("scales", ("lambda_1", "lambda_2"), ALL_TORCH, scope=_LAYER),
        *group("top", ("layernorm", "", "classifier"), ALL_TORCH),
        Row("block_{block}/attention/relative_position", f"{_LAYER}{_BEIT_TABLE}", "NK"),
        *norm("encoder_norm", "pooler.layernorm", TORCH, NORM_AFTER_POOLING),
    ),
    required_names=("embeddings.cls_token", f"encoder.layer.0.{_BEIT_TABLE}"),
    format="huggingface",
    supports=lambda config: config.position_embedding == "relative" and bool(config.layer_scale),
    in_attention=("relative",),
    implied_fields=exact_gelu(epsilon=1e-12),
    ignored=(r"lm_head\..*", r".*relative_position_index"),
    normalize=_beit_names,
    notes={rf"(beit\.)?encoder\.{_TABLE}": "every block has a copy of the shared position table"},
)
