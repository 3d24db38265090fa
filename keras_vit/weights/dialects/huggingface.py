"""The dialect of the transformers library: ViT, DeiT and the encoder of ViTMAE."""

from __future__ import annotations

import re

import numpy as np

from keras_vit.weights.dialects.dialect import Dialect, Row
from keras_vit.weights.dialects.rows import TORCH, linear, norm

_LAYER = "encoder.layer.{block}"
_EMBEDDINGS = "embeddings"
_QKV = ("query", "key", "value")

# In memory, release 5 has other names than the files on the hub (transformers/
# conversion_mapping.py); a plain `torch.save` of its state dict brings them to disk.
_NEW_TO_PUBLISHED = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_NEW_NAME = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")


_ROWS = (
    Row("patch_encoder/class_token", f"{_EMBEDDINGS}.cls_token", "11D"),
    Row(
        "patch_encoder/distillation_token",
        f"{_EMBEDDINGS}.distillation_token",
        "11D",
        "distillation token",
    ),
    Row("patch_encoder/positions", f"{_EMBEDDINGS}.position_embeddings", "1TD -> TD"),
    Row(
        "patch_encoder/projection/kernel",
        f"{_EMBEDDINGS}.patch_embeddings.projection.weight",
        "DCPQ -> (PQC)D",
    ),
    Row("patch_encoder/projection/bias", f"{_EMBEDDINGS}.patch_embeddings.projection.bias", "D"),
    *linear(
        "block_{block}/attention/qkv",
        tuple(f"{_LAYER}.attention.attention.{part}" for part in _QKV),
        "ED",
        bias_part="qkv bias",
    ),
    *linear("block_{block}/attention/out", f"{_LAYER}.attention.output.dense", "DE"),
    *linear("block_{block}/mlp/expand", f"{_LAYER}.intermediate.dense", "MD"),
    *linear("block_{block}/mlp/reduce", f"{_LAYER}.output.dense", "DM"),
    *norm("block_{block}/norm_1", f"{_LAYER}.layernorm_before", TORCH),
    *norm("block_{block}/norm_2", f"{_LAYER}.layernorm_after", TORCH),
    *norm("encoder_norm", "layernorm", TORCH),
    *linear("pre_logits", "pooler.dense", "RD", "representation"),
    *linear("head", "classifier", "YF", "head"),
    *linear("distillation_head", "distillation_classifier", "YF", "distillation head"),
)


def _tidy(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Takes off the prefix of the task's model, and brings names to the published generation."""
    tidied = {}
    for name, tensor in tensors.items():
        published = name.removeprefix("vit.").removeprefix("deit.")
        if match := _NEW_NAME.fullmatch(published):
            module = _NEW_TO_PUBLISHED.get(match[2], match[2])
            published = f"encoder.layer.{match[1]}.{module}.{match[3]}"
        published = re.sub(r"^cls_classifier\.", "classifier.", published)
        tidied[published] = (name, tensor)
    return tidied


# configuration_vit.py and modeling_vit.py (`interpolate_pos_encoding`) of
# https://github.com/huggingface/transformers, release 5.23; a folder's config.json tells more.
HUGGING_FACE = Dialect(
    "huggingface",
    "Hugging Face",
    _ROWS,
    marks=("embeddings.cls_token", "embeddings.patch_embeddings.projection.weight"),
    numerics=lambda inferred: {
        "gelu": "exact",
        "epsilon": 1e-12,
        "position_interpolation": "bicubic",
    },
    # The decoder of a masked autoencoder, and the token for masked patches.
    left=(r"decoder\..*", r"embeddings\.mask_token"),
    tidy=_tidy,
)
