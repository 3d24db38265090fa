"""The dialect of `tf_model.h5`, which transformers wrote for TensorFlow up to release 4."""

from __future__ import annotations

import re

import numpy as np

from keras_vit.weights.dialects.dialect import Dialect, Row
from keras_vit.weights.dialects.keras_names import Named
from keras_vit.weights.dialects.rows import NORM, dense, norm

_LAYER = "encoder/layer_._{block}"
_QKV = ("query", "key", "value")

# A path has the layer of the model, the model's class, and the layer again.
_INNER = re.compile(r"(?:.*/)?(?:vit|deit)/((?:embeddings|encoder|layernorm|pooler)/.+)")
_OUTER = re.compile(r"(?:.*/)?(?:cls_)?(classifier|distillation_classifier)/(\w+)")


_ROWS = (
    Row("patch_encoder/class_token", "embeddings/cls_token", "11D"),
    Row(
        "patch_encoder/distillation_token",
        "embeddings/distillation_token",
        "11D",
        "distillation token",
    ),
    Row("patch_encoder/positions", "embeddings/position_embeddings", "1TD -> TD"),
    *dense("patch_encoder/projection", "embeddings/patch_embeddings/projection", "PQCD -> (PQC)D"),
    *dense(
        "block_{block}/attention/qkv",
        tuple(f"{_LAYER}/attention/attention/{part}" for part in _QKV),
        "DE",
        bias_part="qkv bias",
    ),
    *dense("block_{block}/attention/out", f"{_LAYER}/attention/output/dense", "ED"),
    *dense("block_{block}/mlp/expand", f"{_LAYER}/intermediate/dense", "DM"),
    *dense("block_{block}/mlp/reduce", f"{_LAYER}/output/dense", "MD"),
    *norm("block_{block}/norm_1", f"{_LAYER}/layernorm_before", NORM),
    *norm("block_{block}/norm_2", f"{_LAYER}/layernorm_after", NORM),
    *norm("encoder_norm", "layernorm", NORM),
    *dense("pre_logits", "pooler/dense", "DR", "representation"),
    *dense("head", "classifier", "FY", "head"),
    *dense("distillation_head", "distillation_classifier", "FY", "distillation head"),
)


def _tidy(tensors: dict[str, np.ndarray]) -> Named:
    """Takes off the scopes around the names of the table."""
    tidied: Named = {}
    for name, tensor in tensors.items():
        path = name.removesuffix(":0")
        if match := _INNER.fullmatch(path):
            path = match[1]
        elif match := _OUTER.fullmatch(path):
            path = f"{match[1]}/{match[2]}"
        tidied[name if path in tidied else path] = (name, tensor)
    return tidied


# models/vit/modeling_tf_vit.py and models/deit/modeling_tf_deit.py of
# https://github.com/huggingface/transformers, release 4.57.6; the config.json of a folder tells
# more. `tf.image.resize` has the cubic kernel of `bicubic_antialiased`, and is the same where it
# enlarges.
TF_TRANSFORMERS = Dialect(
    "tf_transformers",
    "transformers for TensorFlow",
    _ROWS,
    marks=("embeddings/cls_token", "embeddings/patch_embeddings/projection/kernel"),
    numerics=lambda _: {
        "gelu": "exact",
        "epsilon": 1e-12,
        "position_interpolation": "bicubic_antialiased",
    },
    left=(r"(?:.*/)?decoder/.*",),  # of a masked autoencoder
    tidy=_tidy,
)
