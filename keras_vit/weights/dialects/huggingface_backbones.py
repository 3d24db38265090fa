"""Weight names and layouts of Transformers' DINOv2, DINOv3, SigLIP, CLIP and BEiT.

In files of SigLIP and CLIP, the tower of texts is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_vit.models import ViTConfig
from keras_vit.weights.dialects.dialect import NORM_AFTER_POOLING, Dialect, Row, exact, renamed
from keras_vit.weights.dialects.huggingface import LAYERS
from keras_vit.weights.dialects.rows import ALL_TORCH, QKV, TORCH, group, norm

_REGISTERS = "register_tokens"
_LAYER = "encoder.layer.{block}."


def _block(*rows: tuple[str, str | tuple[str, ...], str, str]) -> Iterator[Row]:
    for ours, theirs, axes, part in rows:
        yield Row(f"block_{{block}}/{ours}", theirs, axes, part)


def _attention(names: tuple[str, ...]) -> Iterator[Row]:
    """Yields the rows of queries, keys and values whose keys have no bias."""
    weights, biases = (tuple(name + ending for name in names) for ending in TORCH)
    yield from _block(
        ("attention/qkv/kernel", weights, "ED -> DE", ""),
        ("attention/query_value_bias", biases[::2], "D", "query and value bias"),
    )


def _scales(*theirs: str) -> Iterator[Row]:
    for number, name in enumerate(theirs, 1):
        yield from _block((f"scale_{number}/gamma", name, "D", "layer scale"))


def _mlp(kind: str, theirs: str | tuple[str, ...], axes: str) -> Iterator[Row]:
    """Yields the rows of a layer of gated MLPs, which has one name or two."""
    names = (theirs,) if isinstance(theirs, str) else theirs
    weights, biases = (tuple(name + ending for name in names) for ending in TORCH)
    yield from _block(
        (f"mlp/{kind}/kernel", weights, f"{axes} -> {axes[::-1]}", "gated"),
        (f"mlp/{kind}/bias", biases, axes[0], "gated"),
    )


def _gated(config: ViTConfig) -> bool:
    return config.swiglu


def _dinov2_numerics(inferred: Mapping[str, Any]) -> dict[str, Any]:
    kind = "bicubic_antialiased" if inferred["register_tokens"] else "bicubic"
    return {"gelu": "exact", "epsilon": 1e-6, "position_interpolation": kind}


# models/dinov2 and models/dinov2_with_registers of https://github.com/huggingface/transformers,
# release 5.23, as all below.
DINOV2 = Dialect(
    "dinov2",
    "Hugging Face (DINOv2)",
    (
        *group(
            "embedding",
            ("cls_token", "position_embeddings", "patch_embeddings/projection", "", _REGISTERS),
            ALL_TORCH,
            scope="embeddings/",
        ),
        Row("patch_encoder/mask_token", "embeddings.mask_token", "1D -> 11D", "mask token"),
        *group(
            "block",
            ("norm1", LAYERS[1], LAYERS[2], "norm2", "mlp/fc1", "mlp/fc2"),
            ALL_TORCH,
            scope=_LAYER,
            optional=("qkv bias",),
        ),
        *_scales(f"{_LAYER}layer_scale1.lambda1", f"{_LAYER}layer_scale2.lambda1"),
        *_mlp("expand", f"{_LAYER}mlp.weights_in", "WD"),
        *_mlp("reduce", f"{_LAYER}mlp.weights_out", "DM"),
        *group("top", ("layernorm",), ALL_TORCH),
    ),
    marks=("embeddings.cls_token", "encoder.layer.0.layer_scale1.lambda1"),
    format="huggingface",
    suits=lambda config: config.layer_scale is not None and config.position_embedding == "learned",
    alternatives={"gated": _gated},
    numerics=_dinov2_numerics,
    left=(r"classifier\..*",),
    tidy=renamed(lambda name: re.sub(r"^dinov2(_with_registers)?\.", "", name)),
    bare_registers=True,
    notes={
        r"classifier\..*": "the classifier of the class token and the mean of the patches, in one "
        "vector, is not read; the model returns the class token"
    },
)

_DINOV3_LAYER = "layer.{block}."

DINOV3 = Dialect(
    "dinov3_vit",
    "Hugging Face (DINOv3)",
    (
        *group(
            "embedding",
            ("cls_token", "", "patch_embeddings", "", _REGISTERS),
            ALL_TORCH,
            scope="embeddings/",
        ),
        Row("patch_encoder/mask_token", "embeddings.mask_token", "11D", "mask token"),
        *group(
            "block",
            ("norm1", "", "attention/o_proj", "norm2", "mlp/up_proj", "mlp/down_proj"),
            ALL_TORCH,
            scope=_DINOV3_LAYER,
        ),
        *_attention(tuple(f"{_DINOV3_LAYER}attention.{x}_proj" for x in "qkv")),
        *_scales(f"{_DINOV3_LAYER}layer_scale1.lambda1", f"{_DINOV3_LAYER}layer_scale2.lambda1"),
        *_mlp("expand", tuple(f"{_DINOV3_LAYER}mlp.{x}_proj" for x in ("gate", "up")), "MD"),
        *group("top", ("norm",), ALL_TORCH),
    ),
    marks=("embeddings.cls_token", "layer.0.layer_scale1.lambda1"),
    format="huggingface",
    suits=lambda config: config.position_embedding == "rotary",
    alternatives={"gated": _gated},
    in_attention=("rotary",),
    numerics=exact(epsilon=1e-5, position_embedding="rotary", position_rescale=2.0),
    tidy=renamed(lambda name: re.sub(r"^model\.layer\.", "layer.", name)),
)

_TOWER = "vision_model/"
_HEAD = "vision_model.head.attention."
_CLIP_LAYERS = (
    *("layer_norm1", tuple(f"self_attn/{x}_proj" for x in "qkv"), "self_attn/out_proj"),
    *("layer_norm2", "mlp/fc1", "mlp/fc2"),
)
_CLIP_POOLING = (
    *("probe", "attention/q", ("attention/k", "attention/v"), "attention/out_proj", "layernorm"),
    *("mlp/fc1", "mlp/fc2"),
)
# Models without the tower of texts are saved without `vision_model`.
_BARE = re.compile(r"(embeddings|encoder|pre_layrnorm|post_layernorm|head)\.")
_EMBEDDINGS = "vision_model.embeddings."


def _clip_numerics(inferred: Mapping[str, Any]) -> dict[str, Any]:
    gelu, epsilon = ("quick", 1e-5) if inferred["class_token"] else ("tanh", 1e-6)
    return {"gelu": gelu, "epsilon": epsilon, "position_interpolation": "bicubic"}


CLIP = Dialect(
    "clip",
    "Hugging Face (CLIP, SigLIP)",
    (
        Row("patch_encoder/class_token", f"{_EMBEDDINGS}class_embedding", "D -> 11D", "clip"),
        Row("patch_encoder/positions", f"{_EMBEDDINGS}position_embedding.weight", "TD"),
        *group(
            "embedding",
            ("", "", "patch_embedding"),
            ALL_TORCH,
            scope=f"{_TOWER}embeddings/",
            optional=("patch bias",),
        ),
        *norm("pre_norm", "vision_model.pre_layrnorm", TORCH, "clip"),
        *group("block", _CLIP_LAYERS, ALL_TORCH, scope=f"{_TOWER}encoder/layers/{{block}}/"),
        *group("pooling", _CLIP_POOLING, ALL_TORCH, scope=f"{_TOWER}head/"),
        *group("top", ("post_layernorm",), ALL_TORCH, scope=_TOWER),
    ),
    marks=(f"{_EMBEDDINGS}patch_embedding.weight", f"{_EMBEDDINGS}position_embedding.weight"),
    format="huggingface",
    suits=lambda config: (
        config.pre_norm == config.class_token == (not config.patch_bias)
        and config.pooling == ("token" if config.class_token else "map")
    ),
    numerics=_clip_numerics,
    left=(
        *(r"text_model\..*", r"logit_(scale|bias)", r"(visual|text)_projection\.weight"),
        *(r".*\.position_ids", r"classifier\..*"),
    ),
    tidy=renamed(lambda name: f"vision_model.{name}" if _BARE.match(name) else name),
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
        *group(
            "embedding",
            ("cls_token", "", "patch_embeddings/projection"),
            ALL_TORCH,
            scope="embeddings/",
        ),
        Row("patch_encoder/mask_token", "embeddings.mask_token", "11D", "mask token"),
        *group("block", (LAYERS[0], "", *LAYERS[2:]), ALL_TORCH, scope=_LAYER),
        *_attention(tuple(f"{_LAYER}attention.attention.{x}" for x in QKV)),
        *_block(("attention/relative_position", f"{_LAYER}{_BEIT_TABLE}", "NK", "")),
        *_scales(f"{_LAYER}lambda_1", f"{_LAYER}lambda_2"),
        *norm("encoder_norm", "pooler.layernorm", TORCH, NORM_AFTER_POOLING),
        *group("top", ("layernorm", "", "classifier"), ALL_TORCH),
    ),
    marks=("embeddings.cls_token", f"encoder.layer.0.{_BEIT_TABLE}"),
    format="huggingface",
    suits=lambda config: config.position_embedding == "relative",
    in_attention=("relative",),
    numerics=exact(epsilon=1e-12),
    left=(r"lm_head\..*", r".*relative_position_index"),
    tidy=_beit_names,
    notes={rf"(beit\.)?encoder\.{_TABLE}": "every block has a copy of the shared position table"},
)
