"""The dialect of the official code: names and layouts of its .npz files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import SHORTCUT, Dialect, Row

_ATTENTION = "MultiHeadDotProductAttention_1"
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


def _block(ours: str, theirs: str | tuple[str, ...], axes: str) -> Row:
    names = (theirs,) if isinstance(theirs, str) else theirs
    full = tuple(f"Transformer/encoderblock_{{block}}/{name}" for name in names)
    return Row(f"block_{{block}}/{ours}", full, axes)


def _unit(layer: str, part: str = "stem") -> tuple[Row, ...]:
    """A convolution of a residual unit and the group norm that follows it."""
    ours, theirs = "stem/block{stage1}_unit{unit1}", "block{stage1}/unit{unit1}"
    norm = layer.replace("conv", "gn")
    return (
        Row(f"{ours}/{layer}/kernel", f"{theirs}/{layer}/kernel", "abio", part),
        Row(f"{ours}/{norm}/gamma", f"{theirs}/{norm}/scale", "o", part),
        Row(f"{ours}/{norm}/beta", f"{theirs}/{norm}/bias", "o", part),
    )


# The attention pooling of big_vision.
_MAP = "MAPHead_0"
_MAP_ATTENTION = f"{_MAP}/MultiHeadDotProductAttention_0"


def _pool(ours: str, theirs: str | tuple[str, ...], axes: str) -> Row:
    return Row(f"pooling/{ours}", theirs, axes, "attention pooling")


def _key_value(kind: str) -> tuple[str, ...]:
    return tuple(f"{_MAP_ATTENTION}/{part}/{kind}" for part in _QKV[1:])


_ROWS = (
    Row("stem/conv_root/kernel", "conv_root/kernel", "abio", "stem"),
    Row("stem/gn_root/gamma", "gn_root/scale", "o", "stem"),
    Row("stem/gn_root/beta", "gn_root/bias", "o", "stem"),
    *_unit("conv1"),
    *_unit("conv2"),
    *_unit("conv3"),
    *_unit("conv_proj", SHORTCUT),
    Row("patch_encoder/class_token", "cls", "11D", "class token"),
    Row("patch_encoder/projection/kernel", "embedding/kernel", "PQCD -> (PQC)D"),
    Row("patch_encoder/projection/bias", "embedding/bias", "D"),
    Row(
        "patch_encoder/positions",
        _POSITIONS[0],
        "1TD -> TD",
        "positions",
    ),
    Row("patch_encoder/patch_positions", _POSITIONS[1], "1ND -> ND", "patch positions"),
    _block("norm_1/gamma", "LayerNorm_0/scale", "D"),
    _block("norm_1/beta", "LayerNorm_0/bias", "D"),
    _block("attention/qkv/kernel", tuple(f"{_ATTENTION}/{x}/kernel" for x in _QKV), "DKd -> D(Kd)"),
    _block("attention/qkv/bias", tuple(f"{_ATTENTION}/{x}/bias" for x in _QKV), "Kd -> (Kd)"),
    _block("attention/out/kernel", f"{_ATTENTION}/out/kernel", "KdD -> (Kd)D"),
    _block("attention/out/bias", f"{_ATTENTION}/out/bias", "D"),
    _block("norm_2/gamma", "LayerNorm_2/scale", "D"),
    _block("norm_2/beta", "LayerNorm_2/bias", "D"),
    _block("mlp/expand/kernel", "MlpBlock_3/Dense_0/kernel", "DM"),
    _block("mlp/expand/bias", "MlpBlock_3/Dense_0/bias", "M"),
    _block("mlp/reduce/kernel", "MlpBlock_3/Dense_1/kernel", "MD"),
    _block("mlp/reduce/bias", "MlpBlock_3/Dense_1/bias", "D"),
    Row("encoder_norm/gamma", "Transformer/encoder_norm/scale", "D"),
    Row("encoder_norm/beta", "Transformer/encoder_norm/bias", "D"),
    Row("pooling/probe", f"{_MAP}/probe", "11D", "attention pooling"),
    _pool("query/kernel", f"{_MAP_ATTENTION}/query/kernel", "DKd -> D(Kd)"),
    _pool("query/bias", f"{_MAP_ATTENTION}/query/bias", "Kd -> (Kd)"),
    _pool("key_value/kernel", _key_value("kernel"), "DKd -> D(Kd)"),
    _pool("key_value/bias", _key_value("bias"), "Kd -> (Kd)"),
    _pool("out/kernel", f"{_MAP_ATTENTION}/out/kernel", "KdD -> (Kd)D"),
    _pool("out/bias", f"{_MAP_ATTENTION}/out/bias", "D"),
    _pool("norm/gamma", f"{_MAP}/LayerNorm_0/scale", "D"),
    _pool("norm/beta", f"{_MAP}/LayerNorm_0/bias", "D"),
    _pool("mlp/expand/kernel", f"{_MAP}/MlpBlock_0/Dense_0/kernel", "DM"),
    _pool("mlp/expand/bias", f"{_MAP}/MlpBlock_0/Dense_0/bias", "M"),
    _pool("mlp/reduce/kernel", f"{_MAP}/MlpBlock_0/Dense_1/kernel", "MD"),
    _pool("mlp/reduce/bias", f"{_MAP}/MlpBlock_0/Dense_1/bias", "D"),
    Row("pre_logits/kernel", "pre_logits/kernel", "DR", "representation"),
    Row("pre_logits/bias", "pre_logits/bias", "R", "representation"),
    Row("head/kernel", "head/kernel", "FY", "head"),
    Row("head/bias", "head/bias", "Y", "head"),
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


def _numerics(traits: Mapping[str, Any]) -> dict[str, Any]:
    told = {"gelu": "tanh", "epsilon": 1e-6, "position_interpolation": "bilinear_aligned"}
    # Positions that are not stored are big_vision's fixed ones.
    return told if "position_embedding" in traits else told | {"position_embedding": "sincos_2d"}


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
