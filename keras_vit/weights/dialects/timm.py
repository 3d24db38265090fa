"""The dialect of timm: PyTorch names, shared by DeiT, DINO, MAE and many others."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import NORM_AFTER_POOLING, SHORTCUT, Dialect, Row
from keras_vit.weights.dialects.rows import TORCH, linear, norm

_norm = functools.partial(norm, variables=TORCH)


def _unit(ours: str, conv: str, gn: str, part: str = "stem") -> list[Row]:
    unit = "patch_embed.backbone.stages.{stage}.blocks.{unit}"
    kernel, group_norm = f"{ours}/kernel", ours.replace("conv", "gn")
    return [
        Row(kernel, f"{unit}.{conv}.weight", "oiab -> abio", part),
        *_norm(group_norm, f"{unit}.{gn}", part=part, axis="o"),
    ]


_OUR_UNIT = "stem/block{stage1}_unit{unit1}"
_STEM = "patch_embed.backbone.stem"
_BARE_STEM = re.compile(r"^patch_embed\.backbone\.(conv|norm)\.")
_POOL = "attention pooling"

_ROWS = (
    Row("stem/conv_root/kernel", f"{_STEM}.conv.weight", "oiab -> abio", "stem"),
    *_norm("stem/gn_root", f"{_STEM}.norm", part="stem", axis="o"),
    *_unit(f"{_OUR_UNIT}/conv1", "conv1", "norm1"),
    *_unit(f"{_OUR_UNIT}/conv2", "conv2", "norm2"),
    *_unit(f"{_OUR_UNIT}/conv3", "conv3", "norm3"),
    *_unit(f"{_OUR_UNIT}/conv_proj", "downsample.conv", "downsample.norm", SHORTCUT),
    Row("patch_encoder/class_token", "cls_token", "11D", "class token"),
    Row("patch_encoder/distillation_token", "dist_token", "11D", "distillation token"),
    Row("patch_encoder/register_tokens", "reg_token", "1GD", "registers"),
    Row("patch_encoder/positions", "pos_embed", "1TD -> TD", "positions"),
    Row("patch_encoder/projection/kernel", "patch_embed.proj.weight", "DCPQ -> (PQC)D"),
    Row("patch_encoder/projection/bias", "patch_embed.proj.bias", "D", "patch bias"),
    *_norm("pre_norm", "norm_pre", part="norm before the blocks"),
    *_norm("block_{block}/norm_1", "blocks.{block}.norm1"),
    *linear("block_{block}/attention/qkv", "blocks.{block}.attn.qkv", "UD", bias_part="qkv bias"),
    *linear("block_{block}/attention/out", "blocks.{block}.attn.proj", "DE"),
    Row("block_{block}/scale_1/gamma", "blocks.{block}.ls1.gamma", "D", "layer scale"),
    *_norm("block_{block}/norm_2", "blocks.{block}.norm2"),
    *linear("block_{block}/mlp/expand", "blocks.{block}.mlp.fc1", "MD"),
    *linear("block_{block}/mlp/reduce", "blocks.{block}.mlp.fc2", "DM"),
    Row("block_{block}/scale_2/gamma", "blocks.{block}.ls2.gamma", "D", "layer scale"),
    *_norm("encoder_norm", "norm"),
    *_norm("encoder_norm", "fc_norm", part=NORM_AFTER_POOLING),
    Row("pooling/probe", "attn_pool.latent", "11D", _POOL),
    *linear("pooling/query", "attn_pool.q", "DE", _POOL),
    *linear("pooling/key_value", "attn_pool.kv", "VD", _POOL),
    *linear("pooling/out", "attn_pool.proj", "DE", _POOL),
    *_norm("pooling/norm", "attn_pool.norm", part=_POOL),
    *linear("pooling/mlp/expand", "attn_pool.mlp.fc1", "MD", _POOL),
    *linear("pooling/mlp/reduce", "attn_pool.mlp.fc2", "DM", _POOL),
    *linear("pre_logits", "pre_logits.fc", "RD", "representation"),
    *linear("head", "head", "YF", "head"),
    *linear("distillation_head", "head_dist", "YF", "distillation head"),
)


def _numerics(inferred: Mapping[str, Any]) -> dict[str, Any]:
    # A norm before the blocks makes it a model of CLIP, whose epsilon differs.
    epsilon = 1e-5 if inferred["pre_norm"] else 1e-6
    return {
        "gelu": "exact",
        "epsilon": epsilon,
        "position_interpolation": "bicubic_antialiased",
    }


def _tidy(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Brings the names of a stem without stages (R+Ti/16) to those of stems with some."""
    return {_BARE_STEM.sub(rf"{_STEM}.\1.", name): (name, t) for name, t in tensors.items()}


# timm/layers/norm.py and timm/models/vision_transformer.py (`act_layer`, `checkpoint_filter_fn`)
# of https://github.com/huggingface/pytorch-image-models, release 1.0.31.
TIMM = Dialect(
    "timm",
    "timm",
    _ROWS,
    marks=("patch_embed.proj.weight", "blocks.0.norm1.weight"),
    numerics=_numerics,
    # The decoder of a masked autoencoder, and the token for masked patches of DINOv2.
    left=(r"decoder_.*", r"mask_token"),
    tidy=_tidy,
    loose_positions=True,
)
