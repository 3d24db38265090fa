"""Weight names and layouts of the official ViT .npz files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import Dialect, Named, Row
from keras_vit.weights.dialects.rows import DENSE, QKV, group, norm, stem

_BLOCK = "Transformer/encoderblock_{block}"
_ATTENTION = "MultiHeadDotProductAttention_1"
_NORM = ("/scale", "/bias")

# Published files number submodules over all classes of a block, the current code per class.
_NEW_TO_PUBLISHED = {
    "MultiHeadDotProductAttention_0": _ATTENTION,
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
# Tables of all positions, and of those of the patches only; the last name is older.
_POSITIONS = "Transformer/posembed_input/pos_embedding"
_PATCH_POSITIONS = ("pos_embedding", "Transformer/pos_embedding")
_BLOCK_NAME = re.compile(r"(Transformer/encoderblock_\d+)/([^/]+)/(.+)")
_MAP = "MAPHead_0"  # the attention pooling of big_vision
_MAP_ATTENTION = "MultiHeadDotProductAttention_0"
_UNIT = "block{stage1}/unit{unit1}/"
_BOTH = (DENSE, _NORM)
_PROJECTIONS = (tuple(f"{_ATTENTION}/{x}" for x in QKV), f"{_ATTENTION}/out")
_LAYERS = ("LayerNorm_0", *_PROJECTIONS, "LayerNorm_2", "MlpBlock_3/Dense_0", "MlpBlock_3/Dense_1")
_POOLING = (
    *("probe", f"{_MAP_ATTENTION}/query", tuple(f"{_MAP_ATTENTION}/{x}" for x in QKV[1:])),
    *(f"{_MAP_ATTENTION}/out", "LayerNorm_0", "MlpBlock_0/Dense_0", "MlpBlock_0/Dense_1"),
)

_ROWS = (
    *stem(("conv_root", "gn_root"), _UNIT, ("conv", "gn"), ("conv_proj", "gn_proj"), "abio", _BOTH),
    *group("embedding", ("cls", "", "embedding"), _BOTH, optional=("class token",)),
    Row("patch_encoder/positions", _POSITIONS, "1TD -> TD", "positions"),
    Row("patch_encoder/patch_positions", _PATCH_POSITIONS[0], "1ND -> ND", "patch positions"),
    *group("block", _LAYERS, _BOTH, scope=f"{_BLOCK}/", heads_apart=True),
    *norm("encoder_norm", "Transformer/encoder_norm", _NORM),
    *group("pooling", _POOLING, _BOTH, scope=f"{_MAP}/", heads_apart=True),
    *group("top", ("", "pre_logits", "head")),
)


def _normalize(tensors: dict[str, np.ndarray]) -> Named:
    """Renames tensors as in the published files, and flattens group norm parameters."""
    normalized = {}
    for name, plain, tensor in _unstacked(tensors):
        published = plain
        if match := _BLOCK_NAME.fullmatch(plain):
            module = _NEW_TO_PUBLISHED.get(match[2], match[2])
            published = f"{match[1]}/{module}/{match[3]}"
            if published in tensors:  # old and new names in one file: reported as unknown
                published = name
        elif plain in _PATCH_POSITIONS and tensor.ndim == 3:
            # big_vision adds the class token after the positions, in older files before them.
            has_class_token = math.isqrt(tensor.shape[1] - 1) ** 2 == tensor.shape[1] - 1
            published = _POSITIONS if has_class_token else _PATCH_POSITIONS[0]
        if "/gn" in f"/{plain}" and tensor.shape[:-1] == (1, 1, 1):  # as old hybrids store them
            tensor = tensor.reshape(-1)
        normalized[published] = (name, tensor)
    return normalized


def _unstacked(tensors: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yields names in the file, names without prefixes, and tensors with one for each block."""
    for name, tensor in tensors.items():
        plain = name.removeprefix("params/").removeprefix("opt/target/").removeprefix("img/")
        if plain.startswith("Transformer/encoderblock/") and tensor.ndim and tensor.size:
            for index, part in enumerate(tensor):
                yield name, plain.replace("encoderblock", f"encoderblock_{index}"), part
        else:
            yield name, plain, tensor


def _implied_fields(inferred: Mapping[str, Any]) -> dict[str, Any]:
    # Without stored positions, big_vision uses fixed positions.
    fixed = {} if "position_embedding" in inferred else {"position_embedding": "sincos_2d"}
    return {"gelu": "tanh", "epsilon": 1e-6, "position_interpolation": "bilinear_aligned"} | fixed


# Numerics of the official code: `MlpBlock`, flax's LayerNorm and `interpolate_posembed`
# in https://github.com/google-research/vision_transformer (vit_jax/models_vit.py, checkpoint.py);
# for big_vision, vit.py of https://github.com/google-research/big_vision (big_vision/models/).
FLAX = Dialect(
    "npz",
    "official",
    _ROWS,
    required_names=("embedding/kernel", "Transformer/encoder_norm/scale"),
    implied_fields=_implied_fields,
    # Training state of big_vision, and SigLIP's text tower, temperature and bias.
    ignored=(r"opt/.*", r"chrono/.*", r"step", r"txt/.*", r"t", r"b"),
    normalize=_normalize,
)
