"""The dialect of the transformers library: ViT, DeiT and the encoder of ViTMAE."""

from __future__ import annotations

import re

from keras_vit.weights.dialects.dialect import Dialect, Row, exact, renamed
from keras_vit.weights.dialects.rows import ALL_TORCH, QKV, TORCH, group, norm

_DISTILLATION = "embeddings.distillation_token"
_PROJECTION = "embeddings.patch_embeddings.projection"
_LAYERS = (
    *("layernorm_before", tuple(f"attention.attention.{x}" for x in QKV), "attention.output.dense"),
    *("layernorm_after", "intermediate.dense", "output.dense"),
)

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
    Row("patch_encoder/class_token", "embeddings.cls_token", "11D"),
    Row("patch_encoder/distillation_token", _DISTILLATION, "11D", "distillation token"),
    Row("patch_encoder/positions", "embeddings.position_embeddings", "1TD -> TD"),
    Row("patch_encoder/projection/kernel", f"{_PROJECTION}.weight", "DCPQ -> (PQC)D"),
    Row("patch_encoder/projection/bias", f"{_PROJECTION}.bias", "D"),
    *group("block", _LAYERS, ALL_TORCH, scope="encoder.layer.{block}.", bias_part="qkv bias"),
    *norm("encoder_norm", "layernorm", TORCH),
    *group("heads", ("pooler.dense", "classifier", "distillation_classifier"), ALL_TORCH),
)


def _published(name: str) -> str:
    """Takes off the prefix of the task's model, and brings names to the published generation."""
    name = name.removeprefix("vit.").removeprefix("deit.")
    if match := _NEW_NAME.fullmatch(name):
        module = _NEW_TO_PUBLISHED.get(match[2], match[2])
        name = f"encoder.layer.{match[1]}.{module}.{match[3]}"
    return re.sub(r"^cls_classifier\.", "classifier.", name)


# configuration_vit.py and modeling_vit.py (`interpolate_pos_encoding`) of
# https://github.com/huggingface/transformers, release 5.23; a folder's config.json tells more.
HUGGING_FACE = Dialect(
    "huggingface",
    "Hugging Face",
    _ROWS,
    marks=("embeddings.cls_token", f"{_PROJECTION}.weight"),
    numerics=exact(epsilon=1e-12, position_interpolation="bicubic"),
    # The decoder of a masked autoencoder, and the token for masked patches.
    left=(r"decoder\..*", r"embeddings\.mask_token"),
    tidy=renamed(_published),
)
