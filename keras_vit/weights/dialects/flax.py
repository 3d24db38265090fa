"""The dialect of the official code: names and layouts of its .npz files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import SHORTCUT, Dialect, Row
from keras_vit.weights.dialects.rows import dense, norm

_BLOCK = "Transformer/encoderblock_{block}"
_ATTENTION = "MultiHeadDotProductAttention_1"
_NORM = ("/scale", "/bias")
_QKV = ("query", "key", "value")

# Published files count submodules over all classes of a block, today's code per class.
_NEW_TO_PUBLISHED = {
    "MultiHeadDotProductAttention_0": _ATTENTION,
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
# All positions in one table, and those of the patches alone; the last is older.
_POSITIONS = (
    *("Transformer/posembed_input/pos_embedding", "pos_embedding", "Transformer/pos_embedding"),
)
_BLOCK_NAME = re.compile(r"(Transformer/encoderblock_\d+)/([^/]+)/(.+)")


def _unit(layer: str, part: str = "stem") -> tuple[Row, ...]:
    """A convolution of a residual unit and the group norm that follows it."""
    ours, theirs = "stem/block{stage1}_unit{unit1}", "block{stage1}/unit{unit1}"
    gn = layer.replace("conv", "gn")
    return (
        Row(f"{ours}/{layer}/kernel", f"{theirs}/{layer}/kernel", "abio", part),
        *norm(f"{ours}/{gn}", f"{theirs}/{gn}", _NORM, part, "o"),
    )


# The attention pooling of big_vision.
_MAP = "MAPHead_0"
_MAP_ATTENTION = f"{_MAP}/MultiHeadDotProductAttention_0"


_POOL = "attention pooling"
# Queries, or keys and values, of several heads.
_HEADS = ("DKd -> D(Kd)", "Kd -> (Kd)")

_ROWS = (
    Row("stem/conv_root/kernel", "conv_root/kernel", "abio", "stem"),
    *norm("stem/gn_root", "gn_root", _NORM, "stem", "o"),
    *_unit("conv1"),
    *_unit("conv2"),
    *_unit("conv3"),
    *_unit("conv_proj", SHORTCUT),
    Row("patch_encoder/class_token", "cls", "11D", "class token"),
    *dense("patch_encoder/projection", "embedding", "PQCD -> (PQC)D"),
    Row("patch_encoder/positions", _POSITIONS[0], "1TD -> TD", "positions"),
    Row("patch_encoder/patch_positions", _POSITIONS[1], "1ND -> ND", "patch positions"),
    *norm("block_{block}/norm_1", f"{_BLOCK}/LayerNorm_0", _NORM),
    *dense(
        "block_{block}/attention/qkv", tuple(f"{_BLOCK}/{_ATTENTION}/{x}" for x in _QKV), _HEADS
    ),
    *dense("block_{block}/attention/out", f"{_BLOCK}/{_ATTENTION}/out", "KdD -> (Kd)D"),
    *norm("block_{block}/norm_2", f"{_BLOCK}/LayerNorm_2", _NORM),
    *dense("block_{block}/mlp/expand", f"{_BLOCK}/MlpBlock_3/Dense_0", "DM"),
    *dense("block_{block}/mlp/reduce", f"{_BLOCK}/MlpBlock_3/Dense_1", "MD"),
    *norm("encoder_norm", "Transformer/encoder_norm", _NORM),
    Row("pooling/probe", f"{_MAP}/probe", "11D", _POOL),
    *dense("pooling/query", f"{_MAP_ATTENTION}/query", _HEADS, _POOL),
    *dense("pooling/key_value", tuple(f"{_MAP_ATTENTION}/{x}" for x in _QKV[1:]), _HEADS, _POOL),
    *dense("pooling/out", f"{_MAP_ATTENTION}/out", "KdD -> (Kd)D", _POOL),
    *norm("pooling/norm", f"{_MAP}/LayerNorm_0", _NORM, _POOL),
    *dense("pooling/mlp/expand", f"{_MAP}/MlpBlock_0/Dense_0", "DM", _POOL),
    *dense("pooling/mlp/reduce", f"{_MAP}/MlpBlock_0/Dense_1", "MD", _POOL),
    *dense("pre_logits", "pre_logits", "DR", "representation"),
    *dense("head", "head", "FY", "head"),
)


def _tidy(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Brings names to the published generation, and group norms to one axis."""
    tidied = {}
    for name, tensor in tensors.items():
        plain = name.removeprefix("params/").removeprefix("opt/target/")
        published = plain
        if match := _BLOCK_NAME.fullmatch(plain):
            module = _NEW_TO_PUBLISHED.get(match[2], match[2])
            published = f"{match[1]}/{module}/{match[3]}"
            if published in tensors:  # both generations in one file: one is left over
                published = name
        elif plain in _POSITIONS[1:] and tensor.ndim == 3:
            # big_vision adds the class token after the positions; its older files did before.
            joint = math.isqrt(tensor.shape[1] - 1) ** 2 == tensor.shape[1] - 1
            published = _POSITIONS[0] if joint else _POSITIONS[1]
        if "/gn" in f"/{plain}" and tensor.shape[:-1] == (1, 1, 1):  # as old hybrids store them
            tensor = tensor.reshape(-1)
        tidied[published] = (name, tensor)
    return tidied


def _numerics(inferred: Mapping[str, Any]) -> dict[str, Any]:
    config_fields = {"gelu": "tanh", "epsilon": 1e-6, "position_interpolation": "bilinear_aligned"}
    # Positions that are not stored are big_vision's fixed ones.
    return (
        config_fields
        if "position_embedding" in inferred
        else config_fields | {"position_embedding": "sincos_2d"}
    )


# What the official code computes with: `MlpBlock`, flax's LayerNorm and `interpolate_posembed`
# in https://github.com/google-research/vision_transformer (vit_jax/models_vit.py, checkpoint.py);
# for big_vision, vit.py of https://github.com/google-research/big_vision (big_vision/models/).
FLAX = Dialect(
    "npz",
    "official",
    _ROWS,
    marks=("embedding/kernel", "Transformer/encoder_norm/scale"),
    numerics=_numerics,
    left=(r"opt/.*", r"chrono/.*", r"step"),  # of a training run of big_vision
    tidy=_tidy,
)
