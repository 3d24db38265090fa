"""Configurations of the published models, by the names of their constructors."""

from __future__ import annotations

import re
from typing import Any

from keras_vit.models.config import ViTConfig, size

# What the sizes of a family share. DINOv2: https://arxiv.org/abs/2304.07193; TIPSv2, with its
# layout: https://arxiv.org/abs/2604.12012.
_DINOV2: dict[str, Any] = {"image_size": (518, 518), "layer_scale": 1e-5, "gelu": "exact"}
_TIPSV2: dict[str, Any] = {
    "image_size": (448, 448),
    "layer_scale": 1.0,
    "gelu": "exact",
    "register_tokens": 1,
    "prefix_position": False,
}
# DINOv3: https://arxiv.org/abs/2508.10104; EUPE, with its layout: https://arxiv.org/abs/2603.22387.
_DINOV3: dict[str, Any] = {
    "image_size": (256, 256),
    "position_embedding": "rotary",
    "register_tokens": 4,
    "layer_scale": 1e-5,
    "gelu": "exact",
    "epsilon": 1e-5,
    "qkv_bias": False,
}
_EUPE: dict[str, Any] = _DINOV3 | {"qkv_bias": True, "key_bias": False}
# https://arxiv.org/abs/2303.15343 and https://arxiv.org/abs/2502.14786
_SIGLIP: dict[str, Any] = {"class_token": False, "pooling": "map"}
_SIGLIP_256 = _SIGLIP | {"image_size": (256, 256)}
# https://arxiv.org/abs/2103.00020
_CLIP: dict[str, Any] = {"pre_norm": True, "patch_bias": False, "gelu": "exact", "epsilon": 1e-5}
# https://arxiv.org/abs/2303.11331
_EVA02: dict[str, Any] = {
    "position_embedding": "learned_rotary",
    "swiglu": True,
    "key_bias": False,
    "pooling": "gap",
    "norm_after_pooling": True,
}
# https://arxiv.org/abs/2106.08254 and https://arxiv.org/abs/2208.06366
_BEIT: dict[str, Any] = {
    "position_embedding": "relative",
    "layer_scale": 1e-5,
    "gelu": "exact",
    "key_bias": False,
    "pooling": "gap",
    "norm_after_pooling": True,
}


def _family(prefix: str, sizes: str, fields: dict[str, Any]) -> dict[str, ViTConfig]:
    """Returns configurations by name: a prefix, and the width and patch as in `size`."""
    return {
        prefix + re.sub("[+/]", "", name): size(name).replace(**fields) for name in sizes.split()
    }


# The numbers are those of timm 1.0.31 (models/vision_transformer.py, eva.py and beit.py).
PUBLISHED: dict[str, ViTConfig] = {
    "ViTMicro4": size("Micro/4").replace(image_size=(32, 32)),
    **_family("ViT", "Ti/16 S/32 S/16 S/8 B/32 B/16 B/8 L/32 L/16 H/14 g/14 G/14", {}),
    **_family("ViT", "R+Ti/16 R26+S/32 R50+B/16 R50+L/32", {}),
    **_family("DINOv2", "S/14 B/14 L/14", _DINOV2),
    "DINOv2G14": size("giant/14").replace(**_DINOV2, swiglu=True),
    **_family("DINOv3", "S/16", _DINOV3),
    "DINOv3S16Plus": size("S/16").replace(**_DINOV3, swiglu=True),
    **_family("DINOv3", "B/16 L/16", _DINOV3),
    "DINOv3H16Plus": size("H/16").replace(**_DINOV3, swiglu=True, num_heads=20),
    **_family("EUPE", "Ti/16 S/16 B/16", _EUPE),
    **_family("TIPSv2", "B/14 L/14 SO400M/14", _TIPSV2),
    "TIPSv2G14": size("giant/14").replace(**_TIPSV2, swiglu=True),
    **_family("SigLIP", "B/16", _SIGLIP),
    **_family("SigLIP", "L/16", _SIGLIP_256),
    **_family("SigLIP", "SO400M/14", _SIGLIP),
    **_family("SigLIP2", "B/16", _SIGLIP),
    **_family("SigLIP2", "L/16", _SIGLIP_256),
    **_family("SigLIP2", "SO400M/14", _SIGLIP),
    **_family("SigLIP2", "SO400M/16", _SIGLIP_256),
    **_family("CLIP", "B/32 B/16 L/14", _CLIP),
    **_family("EVA02", "Ti/14", _EVA02 | {"mlp_dim": 512}),
    **_family("EVA02", "S/14", _EVA02 | {"mlp_dim": 1024}),
    **_family("EVA02", "B/14", _EVA02 | {"mlp_dim": 2048, "mlp_norm": True}),
    **_family("EVA02", "L/14", _EVA02 | {"mlp_dim": 2730, "mlp_norm": True}),
    **_family("BEiT", "B/16", _BEIT | {"layer_scale": 0.1}),
    **_family("BEiT", "L/16", _BEIT),
    **_family("BEiTv2", "B/16 L/16", _BEIT),
}

# Only for estimates (`keras-vit plan`): with 27 GB of weights, there is no constructor.
PLANNED: dict[str, ViTConfig] = {
    "DINOv37B16": PUBLISHED["DINOv3S16Plus"].replace(
        hidden_size=4096, num_layers=40, num_heads=32, mlp_dim=8192
    ),
}
