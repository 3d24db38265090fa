"""Weight names and layouts of Hugging Face Transformers: ViT, DeiT and the encoder of ViTMAE."""

from __future__ import annotations

import re

from keras_vit.weights.dialects.dialect import Dialect, exact_gelu, renamed
from keras_vit.weights.dialects.rows import ALL_TORCH, QKV, group

# Layers of the models for PyTorch and for TensorFlow.
_PATCHES = "patch_embeddings/projection"
EMBEDDING = ("cls_token", "position_embeddings", _PATCHES, "distillation_token")
_ATTENTION = (tuple(f"attention/attention/{x}" for x in QKV), "attention/output/dense")
LAYERS = ("layernorm_before", *_ATTENTION, "layernorm_after", "intermediate/dense", "output/dense")
TOP = ("layernorm", "pooler/dense", "classifier", "distillation_classifier")

# In memory, release 5 has other names than the files on the hub (transformers/
# conversion_mapping.py); a plain `torch.save` of its state dict writes these names.
_NEW_TO_PUBLISHED = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_NEW_NAME = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")


def _published(name: str) -> str:
    """Converts a tensor name to its form in published files, without a model prefix."""
    name = name.removeprefix("vit.").removeprefix("deit.")
    if match := _NEW_NAME.fullmatch(name):
        module = _NEW_TO_PUBLISHED.get(match[2], match[2])
        name = f"encoder.layer.{match[1]}.{module}.{match[3]}"
    return re.sub(r"^cls_classifier\.", "classifier.", name)


# configuration_vit.py and modeling_vit.py (`interpolate_pos_encoding`) of
# https://github.com/huggingface/transformers, release 5.23; a folder's config.json overrides these.
HUGGING_FACE = Dialect(
    "huggingface",
    "Hugging Face",
    (
        *group("embedding", EMBEDDING, ALL_TORCH, scope="embeddings/"),
        *group("block", LAYERS, ALL_TORCH, scope="encoder/layer/{block}/", optional=("qkv bias",)),
        *group("top", TOP, ALL_TORCH),
    ),
    required_names=("embeddings.cls_token", "embeddings.patch_embeddings.projection.weight"),
    implied_fields=exact_gelu(epsilon=1e-12, position_interpolation="bicubic"),
    # The decoder of a masked autoencoder, and the token for masked patches.
    ignored=(r"decoder\..*", r"embeddings\.mask_token"),
    normalize=renamed(_published),
)
