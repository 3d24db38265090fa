"""The dialect of torchvision, which the SWAG weights share."""

from __future__ import annotations

import re

from keras_vit.weights.dialects.dialect import Dialect, Row, exact, renamed
from keras_vit.weights.dialects.rows import ALL_TORCH, TORCH, group, linear, norm

_LAYER = "encoder.layers.encoder_layer_{block}"
_ATTENTION = f"{_LAYER}.self_attention"
# Files of 2021 and 2022 name the perceptron's layers in words (`MLPBlock`, version 1).
_OLD_MLP = re.compile(r"(encoder\.layers\.encoder_layer_\d+\.mlp)\.linear_([12])\.(\w+)")

_ROWS = (
    Row("patch_encoder/class_token", "class_token", "11D"),
    Row("patch_encoder/positions", "encoder.pos_embedding", "1TD -> TD"),
    Row("patch_encoder/projection/kernel", "conv_proj.weight", "DCPQ -> (PQC)D"),
    Row("patch_encoder/projection/bias", "conv_proj.bias", "D"),
    *norm("block_{block}/norm_1", f"{_LAYER}.ln_1", TORCH),
    Row("block_{block}/attention/qkv/kernel", f"{_ATTENTION}.in_proj_weight", "UD -> DU"),
    Row("block_{block}/attention/qkv/bias", f"{_ATTENTION}.in_proj_bias", "U"),
    *linear("block_{block}/attention/out", f"{_ATTENTION}.out_proj", "DE"),
    *norm("block_{block}/norm_2", f"{_LAYER}.ln_2", TORCH),
    *linear("block_{block}/mlp/expand", f"{_LAYER}.mlp.0", "MD"),
    *linear("block_{block}/mlp/reduce", f"{_LAYER}.mlp.3", "DM"),
    *norm("encoder_norm", "encoder.ln", TORCH),
    *group("heads", ("heads.pre_logits", "heads.head"), ALL_TORCH),
)


def _published(name: str) -> str:
    """Brings the names of the perceptron's layers to the present ones."""
    return _OLD_MLP.sub(lambda m: f"{m[1]}.{'0' if m[2] == '1' else '3'}.{m[3]}", name)


# torchvision/models/vision_transformer.py (`norm_layer`, `interpolate_embeddings`) of
# https://github.com/pytorch/vision, release 0.28.
TORCHVISION = Dialect(
    "torchvision",
    "torchvision",
    _ROWS,
    marks=("conv_proj.weight", "encoder.ln.weight"),
    numerics=exact(epsilon=1e-6, position_interpolation="bicubic_aligned"),
    tidy=renamed(_published),
)
