"""Writes the cases of `test_parity.py`: tiny models of other libraries with random weights.

Each case is a file of tensors (`tensor/NAME`), images (`images0`, ...), the outputs of the
library's own code for them (`outputs0`, ...) and its configuration file (`config`).

Run in an environment with torch, timm 1.0.31, transformers 5.23, open_clip 3.3 and safetensors:
    python tests/weights/foundation/make_cases.py
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import transformers
from safetensors.torch import load_file
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


HF: dict[str, Any] = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": HEADS},
    **{"patch_size": 4, "image_size": 16},
}
TOWERS = (transformers.CLIPVisionModel, transformers.SiglipVisionModel)
WIDTH = {"intermediate_size": 40}


def write_hf(name: str, model: transformers.PreTrainedModel, *sizes: Any, **options: Any) -> None:
    """Writes one case of transformers: logits, or the pooled output; `sizes` are further ones."""
    randomise(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
    # As in the files of the hub, which older releases read as well.
    tower = "vision_model." if isinstance(model, TOWERS) else ""
    content: dict[str, Any] = {f"tensor/{tower}{k}": v.numpy() for k, v in tensors.items()}
    for index, size in enumerate([(16, 16), *sizes]):
        images = torch.randn(2, 3, *size)
        with torch.no_grad():
            outputs = model(images, **(options if index else {}))
        found = outputs.logits if "logits" in outputs else outputs.pooler_output
        content[f"images{index}"] = images.numpy().transpose(0, 2, 3, 1)
        content[f"outputs{index}"] = found.numpy()
    config = json.dumps(model.config.to_dict())
    np.savez_compressed(FOLDER / f"{name}.npz", config=config, **content)


def hf_cases() -> None:
    kinds = transformers
    dinov2 = kinds.Dinov2Config(**HF, mlp_ratio=2)
    write_hf("hf_dinov2", kinds.Dinov2Model(dinov2), (24, 20), (12, 12))
    registers = kinds.Dinov2WithRegistersConfig(**HF, mlp_ratio=2, use_swiglu_ffn=True)
    model = kinds.Dinov2WithRegistersModel(registers)
    write_hf("hf_dinov2_with_registers", model, (24, 20), (12, 12))
    dinov3 = kinds.DINOv3ViTConfig(**HF, **WIDTH, num_register_tokens=4)
    write_hf("hf_dinov3", kinds.DINOv3ViTModel(dinov3), (12, 20))
    gated = {"use_gated_mlp": True, "hidden_act": "silu", "query_bias": False, "value_bias": False}
    gated = kinds.DINOv3ViTConfig(**HF, **WIDTH, **gated, num_register_tokens=4)
    write_hf("hf_dinov3_gated", kinds.DINOv3ViTModel(gated), (12, 20))
    resized = {"interpolate_pos_encoding": True}
    siglip = kinds.SiglipVisionModel(kinds.SiglipVisionConfig(**HF, **WIDTH))
    write_hf("hf_siglip", siglip, (24, 20), **resized)
    clip = kinds.CLIPVisionModel(kinds.CLIPVisionConfig(**HF, **WIDTH))
    write_hf("hf_clip", clip, (24, 20), **resized)
    beit = {**HF, **WIDTH, "use_relative_position_bias": True}
    write_hf("hf_beit", kinds.BeitModel(kinds.BeitConfig(**beit, use_mask_token=True)))
    labelled = kinds.BeitConfig(**beit, use_mean_pooling=False, num_labels=7)
    write_hf("hf_beit_token", kinds.BeitForImageClassification(labelled))
    labelled = kinds.BeitConfig(**beit, num_labels=7)
    write_hf("hf_beit_classifier", kinds.BeitForImageClassification(labelled))


def open_clip_cases() -> None:
    vision = {"image_size": 16, "width": 24, "layers": 2, "patch_size": 4, "mlp_ratio": 2.0}
    text = {"context_length": 8, "vocab_size": 11, "width": 8, "heads": 2, "layers": 1}
    config = {"embed_dim": 8, "quick_gelu": True, "text_cfg": text}
    config["vision_cfg"] = {**vision, "head_width": 24 // HEADS}
    model = randomise(open_clip.CLIP(**config))
    large = {**config, "vision_cfg": {**config["vision_cfg"], "image_size": (24, 20)}}
    other = open_clip.CLIP(**large).eval()
    state = dict(model.state_dict())
    open_clip.model.resize_pos_embed(state, other)
    other.load_state_dict(state)
    content: dict[str, Any] = {f"tensor/{k}": v.numpy() for k, v in model.state_dict().items()}
    for index, (tower, size) in enumerate([(model.visual, (16, 16)), (other.visual, (24, 20))]):
        images, tower.proj = torch.randn(2, 3, *size), None
        with torch.no_grad():
            content[f"outputs{index}"] = tower(images).numpy()
        content[f"images{index}"] = images.numpy().transpose(0, 2, 3, 1)
    described = {"model_cfg": config, "preprocess_cfg": {"resize_mode": "shortest"}}
    np.savez_compressed(FOLDER / "openclip.npz", config=json.dumps(described), **content)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for cases in (timm_cases, hf_cases, open_clip_cases):
        torch.manual_seed(0)
        cases()
