"""Writes the cases of `test_parity.py`: tiny models of other libraries with random weights.

Each case is a file of tensors (`tensor/NAME`), images (`images0`, ...), the outputs of the
library's own code for them (`outputs0`, ...) and its configuration file (`config`).

Run in an environment with torch, timm 1.0.31 and safetensors:
    python tests/weights/foundation/make_cases.py
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.layers import SwiGLUPacked
from timm.models.beit import Beit
from timm.models.beit import checkpoint_filter_fn as beit_filter
from timm.models.eva import Eva
from timm.models.eva import checkpoint_filter_fn as eva_filter
from timm.models.vision_transformer import VisionTransformer

FOLDER = Path(__file__).parent / "cases"
HEADS = 2
SMALL: dict[str, Any] = {"embed_dim": 24, "depth": 2, "num_heads": HEADS, "patch_size": 4}
EPS = functools.partial(torch.nn.LayerNorm, eps=1e-5)
DINOV3: dict[str, Any] = {
    **{"num_classes": 0, "init_values": 1e-5, "num_reg_tokens": 4, "use_fc_norm": False},
    **{"rope_type": "dinov3", "rope_temperature": 100, "rope_rotate_half": True},
    **{"use_rot_pos_emb": True, "use_abs_pos_emb": False, "dynamic_img_size": True},
    **{"norm_layer": EPS, "img_size": 16, **SMALL},
}
EVA02: dict[str, Any] = {
    **{"img_size": 16, "mlp_ratio": 2, "swiglu_mlp": True, "use_rot_pos_emb": True},
    **{"ref_feat_shape": (16, 16), "num_classes": 7, **SMALL},
}
BEIT: dict[str, Any] = {
    **{"img_size": 16, "mlp_ratio": 2, "init_values": 0.1, "use_abs_pos_emb": False},
    **{"use_rel_pos_bias": True, "num_classes": 7, **SMALL},
}
VIT: dict[str, Any] = {"img_size": 16, "num_classes": 7, **SMALL}


def randomise(model: torch.nn.Module) -> torch.nn.Module:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def write(
    name: str, model: torch.nn.Module, others: list[tuple[torch.nn.Module, tuple[int, int]]] = ()
) -> None:
    """Writes one case; `others` compute with the same weights, resized to other image sizes."""
    content: dict[str, Any] = {f"tensor/{k}": v.numpy() for k, v in model.state_dict().items()}
    for index, (other, size) in enumerate([(model, getattr(model, "sides", (16, 16))), *others]):
        images = torch.randn(2, 3, *size)
        with torch.no_grad():
            outputs = other(images)
        content[f"images{index}"] = images.numpy().transpose(0, 2, 3, 1)
        content[f"outputs{index}"] = outputs.numpy()
    sides = [3, *getattr(model, "sides", (16, 16))]
    config = {"pretrained_cfg": {"input_size": sides}, "model_args": {"num_heads": HEADS}}
    config["model_args"] |= getattr(model, "described", {})
    np.savez_compressed(FOLDER / f"{name}.npz", config=json.dumps(config), **content)


def resized(kind: type, arguments: dict[str, Any], model: torch.nn.Module, keep: Any) -> Any:
    other = kind(**arguments | {"img_size": 24})
    other.load_state_dict(keep(dict(model.state_dict()), other))
    return other.eval()


def timm_cases() -> None:
    model = randomise(Eva(**DINOV3, qkv_bias=False, mlp_ratio=2))
    write("timm_dinov3", model, [(model, (12, 20))])
    write(
        "timm_dinov3_gated",
        randomise(Eva(**DINOV3, mlp_ratio=3, swiglu_mlp=True, swiglu_align_to=8)),
    )
    model = randomise(Eva(**EVA02))
    write("timm_eva02_ti", model, [(resized(Eva, EVA02, model, eva_filter), (24, 24))])
    write("timm_eva02_b", randomise(Eva(**EVA02, qkv_fused=False, scale_mlp=True)))
    model = randomise(Beit(**BEIT))
    write("timm_beit", model, [(resized(Beit, BEIT, model, beit_filter), (24, 24))])
    model = randomise(Beit(**BEIT | {"img_size": (16, 24)}))
    model.sides = (16, 24)
    write("timm_beit_wide", model)
    gated = {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU, "init_values": 1e-5}
    write("timm_dinov2_g", randomise(VisionTransformer(**VIT | {"num_classes": 0}, **gated)))
    clip = VisionTransformer(**VIT, pre_norm=True, act_layer="quick_gelu", norm_layer=EPS)
    clip.described = {"act_layer": "quick_gelu"}
    write("timm_clip", randomise(clip))
    siglip = VisionTransformer(**VIT | {"num_classes": 0}, class_token=False, global_pool="map")
    write("timm_siglip", randomise(siglip))


if __name__ == "__main__":
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    timm_cases()
