"""Writes the cases of `test_windows.py`: tiny ViTDet encoders of other libraries.

Each case is a file of tensors by timm's names of a Vision Transformer, of images, and of the tokens
after the last block.

Run in an environment with torch, timm 1.0.31 and transformers 5.23:
    python tests/models/windows/make_cases.py
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
import transformers
from timm.models.vision_transformer_sam import VisionTransformerSAM

FOLDER = Path(__file__).parent
SIZE = (20, 28)  # 5 x 7 patches of 4 pixels, in windows of 3 x 3
NAMES = {
    "embeddings.projection": "patch_embed.proj",
    "encoder.layer.": "blocks.",
    ".attention.": ".attn.",
}


def write(
    name: str, tensors: dict[str, torch.Tensor], images: torch.Tensor, tokens: object
) -> None:
    tensors |= {"norm.weight": torch.ones(24), "norm.bias": torch.zeros(24)}
    content = {f"tensor/{key}": value.numpy() for key, value in tensors.items()}
    content |= {"images": images.numpy().transpose(0, 2, 3, 1), "tokens": np.asarray(tokens)}
    np.savez_compressed(FOLDER / f"{name}.npz", **content)


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def timm_case() -> None:
    model = VisionTransformerSAM(
        **{"img_size": SIZE, "patch_size": 4, "embed_dim": 24, "depth": 4, "num_heads": 2},
        **{"window_size": 3, "global_attn_indexes": (1, 3), "neck_chans": 0, "num_classes": 0},
    )
    randomised(model)
    seen = []
    model.blocks[-1].register_forward_hook(lambda *given: seen.append(given[2]))
    images = torch.randn(2, 3, *SIZE)
    with torch.no_grad():
        model(images)
    wanted = re.compile(r"pos_embed|patch_embed|blocks")
    tensors = {name: value for name, value in model.state_dict().items() if wanted.match(name)}
    tensors["pos_embed"] = tensors["pos_embed"].reshape(1, -1, 24)
    write("timm", tensors, images, seen[0])


def transformers_case() -> None:
    config = transformers.VitDetConfig(
        **{"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 4},
        **{"image_size": 20, "pretrain_image_size": 20, "window_size": 3, "mlp_ratio": 4},
        window_block_indices=[0, 2],
    )
    model = randomised(transformers.VitDetModel(config))
    images = torch.randn(2, 3, 20, 20)
    with torch.no_grad():
        tokens = model(images).last_hidden_state  # (B, D, h, w)
    tensors = {}
    for name, value in model.state_dict().items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        tensors[name] = value
    # The first row is that of a class token, which the model does not have.
    tensors["pos_embed"] = tensors.pop("embeddings.position_embeddings")[:, 1:]
    write("transformers", tensors, images, tokens.permute(0, 2, 3, 1))


if __name__ == "__main__":
    torch.manual_seed(0)
    timm_case()
    transformers_case()
