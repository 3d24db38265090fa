"""Configurations of the published models, by the names of their constructors."""

from __future__ import annotations

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

# Width and patch as in `size`, and the fields that differ. The numbers are those of timm 1.0.31
# (models/vision_transformer.py, eva.py and beit.py).
_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTMicro4": ("Micro/4", {"image_size": (32, 32)}),
    "ViTTi16": ("Ti/16", {}),
    "ViTS32": ("S/32", {}),
    "ViTS16": ("S/16", {}),
    "ViTS8": ("S/8", {}),
    "ViTB32": ("B/32", {}),
    "ViTB16": ("B/16", {}),
    "ViTB8": ("B/8", {}),
    "ViTL32": ("L/32", {}),
    "ViTL16": ("L/16", {}),
    "ViTH14": ("H/14", {}),
    "ViTg14": ("g/14", {}),
    "ViTG14": ("G/14", {}),
    "ViTRTi16": ("R+Ti/16", {}),
    "ViTR26S32": ("R26+S/32", {}),
    "ViTR50B16": ("R50+B/16", {}),
    "ViTR50L32": ("R50+L/32", {}),
    "DINOv2S14": ("S/14", _DINOV2),
    "DINOv2B14": ("B/14", _DINOV2),
    "DINOv2L14": ("L/14", _DINOV2),
    "DINOv2G14": ("giant/14", _DINOV2 | {"swiglu": True}),
    "DINOv3S16": ("S/16", _DINOV3),
    "DINOv3S16Plus": ("S/16", _DINOV3 | {"swiglu": True}),
    "DINOv3B16": ("B/16", _DINOV3),
    "DINOv3L16": ("L/16", _DINOV3),
    "DINOv3H16Plus": ("H/16", _DINOV3 | {"swiglu": True, "num_heads": 20}),
    "EUPETi16": ("Ti/16", _EUPE),
    "EUPES16": ("S/16", _EUPE),
    "EUPEB16": ("B/16", _EUPE),
    "TIPSv2B14": ("B/14", _TIPSV2),
    "TIPSv2L14": ("L/14", _TIPSV2),
    "TIPSv2SO400M14": ("SO400M/14", _TIPSV2),
    "TIPSv2G14": ("giant/14", _TIPSV2 | {"swiglu": True}),
    "SigLIPB16": ("B/16", _SIGLIP),
    "SigLIPL16": ("L/16", _SIGLIP_256),
    "SigLIPSO400M14": ("SO400M/14", _SIGLIP),
    "SigLIP2B16": ("B/16", _SIGLIP),
    "SigLIP2L16": ("L/16", _SIGLIP_256),
    "SigLIP2SO400M14": ("SO400M/14", _SIGLIP),
    "SigLIP2SO400M16": ("SO400M/16", _SIGLIP_256),
    "CLIPB32": ("B/32", _CLIP),
    "CLIPB16": ("B/16", _CLIP),
    "CLIPL14": ("L/14", _CLIP),
    "EVA02Ti14": ("Ti/14", _EVA02 | {"mlp_dim": 512}),
    "EVA02S14": ("S/14", _EVA02 | {"mlp_dim": 1024}),
    "EVA02B14": ("B/14", _EVA02 | {"mlp_dim": 2048, "mlp_norm": True}),
    "EVA02L14": ("L/14", _EVA02 | {"mlp_dim": 2730, "mlp_norm": True}),
    "BEiTB16": ("B/16", _BEIT | {"layer_scale": 0.1}),
    "BEiTL16": ("L/16", _BEIT),
    "BEiTv2B16": ("B/16", _BEIT),
    "BEiTv2L16": ("L/16", _BEIT),
}

PUBLISHED: dict[str, ViTConfig] = {
    name: size(width).replace(**fields) for name, (width, fields) in _ROWS.items()
}

# Only for estimates (`keras-vit plan`): with 27 GB of weights, there is no constructor.
PLANNED: dict[str, ViTConfig] = {
    "DINOv37B16": PUBLISHED["DINOv3S16Plus"].replace(
        hidden_size=4096, num_layers=40, num_heads=32, mlp_dim=8192
    ),
}
