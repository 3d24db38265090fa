"""Weight names and layouts of timm, also used by DeiT, DINO, MAE and many others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from keras_vit.weights.dialects.dialect import NORM_AFTER_POOLING, Dialect, renamed
from keras_vit.weights.dialects.rows import ALL_TORCH, COMMON_PARTS, TORCH, group, norm, stem

_STEM = "patch_embed.backbone.stem"
_UNIT = "patch_embed.backbone.stages.{stage}.blocks.{unit}."
_ROOT = (f"{_STEM}.conv", f"{_STEM}.norm")
_SHORTCUT = ("downsample.conv", "downsample.norm")
_BARE_STEM = re.compile(r"^patch_embed\.backbone\.(conv|norm)\.")
EMBEDDING = ("cls_token", "pos_embed", "patch_embed.proj", "dist_token", "reg_token")
BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_POOLING = ("latent", "q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2")


def _implied_fields(inferred: Mapping[str, Any]) -> dict[str, Any]:
    # A model with a norm before the blocks is a CLIP model, whose epsilon differs.
    epsilon = 1e-5 if inferred["pre_norm"] else 1e-6
    return {"gelu": "exact", "epsilon": epsilon, "position_interpolation": "bicubic_antialiased"}


# timm/layers/norm.py and timm/models/vision_transformer.py (`act_layer`, `checkpoint_filter_fn`)
# of https://github.com/huggingface/pytorch-image-models, release 1.0.31.
TIMM = Dialect(
    "timm",
    "timm",
    (
        *stem(_ROOT, _UNIT, ("conv", "norm"), _SHORTCUT, "oiab -> abio", ALL_TORCH),
        *group("embedding", EMBEDDING, ALL_TORCH, optional=COMMON_PARTS),
        *norm("pre_norm", "norm_pre", TORCH, "norm before the blocks"),
        *group("block", BLOCK, ALL_TORCH, scope="blocks.{block}.", optional=COMMON_PARTS),
        *group("scales", ("ls1.gamma", "ls2.gamma"), ALL_TORCH, scope="blocks.{block}."),
        *norm("encoder_norm", "fc_norm", TORCH, NORM_AFTER_POOLING),
        *group("pooling", _POOLING, ALL_TORCH, scope="attn_pool."),
        *group("top", ("norm", "pre_logits.fc", "head", "head_dist"), ALL_TORCH),
    ),
    required_names=("patch_embed.proj.weight", "blocks.0.norm1.weight"),
    implied_fields=_implied_fields,
    # The decoder of a masked autoencoder, and the token for masked patches of DINOv2.
    ignored=(r"decoder_.*", r"mask_token"),
    # The names of a stem without stages (R+Ti/16) become those of stems with stages.
    normalize=renamed(lambda name: _BARE_STEM.sub(rf"{_STEM}.\1.", name)),
    optional_prefix=True,
)
