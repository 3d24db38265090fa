"""The dialect of torchvision, which the SWAG weights share."""

from __future__ import annotations

import re

import numpy as np

from keras_vit.weights.dialects.dialect import Dialect, Row

_LAYER = "encoder.layers.encoder_layer_{block}"
# Files of 2021 and 2022 name the perceptron's layers in words (`MLPBlock`, version 1).
_OLD_MLP = re.compile(r"(encoder\.layers\.encoder_layer_\d+\.mlp)\.linear_([12])\.(\w+)")

_ROWS = (
    Row("patch_encoder/class_token", "class_token", "11D"),
    Row("patch_encoder/positions", "encoder.pos_embedding", "1TD -> TD"),
    Row("patch_encoder/projection/kernel", "conv_proj.weight", "DCPQ -> (PQC)D"),
    Row("patch_encoder/projection/bias", "conv_proj.bias", "D"),
    Row("block_{block}/norm_1/gamma", f"{_LAYER}.ln_1.weight", "D"),
    Row("block_{block}/norm_1/beta", f"{_LAYER}.ln_1.bias", "D"),
    Row(
        "block_{block}/attention/qkv/kernel", f"{_LAYER}.self_attention.in_proj_weight", "UD -> DU"
    ),
    Row("block_{block}/attention/qkv/bias", f"{_LAYER}.self_attention.in_proj_bias", "U"),
    Row(
        "block_{block}/attention/out/kernel", f"{_LAYER}.self_attention.out_proj.weight", "DE -> ED"
    ),
    Row("block_{block}/attention/out/bias", f"{_LAYER}.self_attention.out_proj.bias", "D"),
    Row("block_{block}/norm_2/gamma", f"{_LAYER}.ln_2.weight", "D"),
    Row("block_{block}/norm_2/beta", f"{_LAYER}.ln_2.bias", "D"),
    Row("block_{block}/mlp/expand/kernel", f"{_LAYER}.mlp.0.weight", "MD -> DM"),
    Row("block_{block}/mlp/expand/bias", f"{_LAYER}.mlp.0.bias", "M"),
    Row("block_{block}/mlp/reduce/kernel", f"{_LAYER}.mlp.3.weight", "DM -> MD"),
    Row("block_{block}/mlp/reduce/bias", f"{_LAYER}.mlp.3.bias", "D"),
    Row("encoder_norm/gamma", "encoder.ln.weight", "D"),
    Row("encoder_norm/beta", "encoder.ln.bias", "D"),
    Row("pre_logits/kernel", "heads.pre_logits.weight", "RD -> DR", "representation"),
    Row("pre_logits/bias", "heads.pre_logits.bias", "R", "representation"),
    Row("head/kernel", "heads.head.weight", "YF -> FY", "head"),
    Row("head/bias", "heads.head.bias", "Y", "head"),
)


def _tidy(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Brings the names of the perceptron's layers to the present ones."""
    number = {"1": "0", "2": "3"}
    return {
        _OLD_MLP.sub(lambda m: f"{m[1]}.{number[m[2]]}.{m[3]}", name): (name, tensor)
        for name, tensor in tensors.items()
    }


# torchvision/models/vision_transformer.py (`norm_layer`, `interpolate_embeddings`) of
# https://github.com/pytorch/vision, release 0.28.
TORCHVISION = Dialect(
    "torchvision",
    "torchvision",
    _ROWS,
    marks=("conv_proj.weight", "encoder.ln.weight"),
    numerics=lambda traits: {
        "gelu": "exact",
        "epsilon": 1e-6,
        "position_interpolation": "bicubic_aligned",
    },
    tidy=_tidy,
)
