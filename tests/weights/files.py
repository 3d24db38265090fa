"""Files in the official format with random numbers, for a model of `tests.helpers.CONFIG`."""

from __future__ import annotations

from pathlib import Path

import h5py
import keras
import numpy as np

from keras_vit.models import ViTConfig
from tests.helpers import CONFIG

SQUARE = CONFIG.replace(image_size=(15, 10))  # a grid of 5 x 5, as every published file has


def official_tensors(config: ViTConfig = SQUARE, seed: int = 13) -> dict[str, np.ndarray]:
    """What the official code would save for this configuration, under the published names."""
    d, m = config.hidden_size, config.mlp_dim
    heads = (config.num_heads, d // config.num_heads)
    attention = "MultiHeadDotProductAttention_1"
    block = {
        "LayerNorm_0/scale": (d,),
        "LayerNorm_0/bias": (d,),
        **{f"{attention}/{part}/kernel": (d, *heads) for part in ("query", "key", "value")},
        **{f"{attention}/{part}/bias": heads for part in ("query", "key", "value")},
        f"{attention}/out/kernel": (*heads, d),
        f"{attention}/out/bias": (d,),
        "LayerNorm_2/scale": (d,),
        "LayerNorm_2/bias": (d,),
        "MlpBlock_3/Dense_0/kernel": (d, m),
        "MlpBlock_3/Dense_0/bias": (m,),
        "MlpBlock_3/Dense_1/kernel": (m, d),
        "MlpBlock_3/Dense_1/bias": (d,),
    }
    width = config.representation_size or d
    shapes = {
        "embedding/kernel": (*config.patch, config.channels, d),
        "embedding/bias": (d,),
        "Transformer/posembed_input/pos_embedding": (
            *(1, config.grid[0] * config.grid[1] + config.class_token, d),
        ),
        "Transformer/encoder_norm/scale": (d,),
        "Transformer/encoder_norm/bias": (d,),
        **{
            f"Transformer/encoderblock_{index}/{name}": shape
            for index in range(config.num_layers)
            for name, shape in block.items()
        },
    }
    if config.class_token:
        shapes["cls"] = (1, 1, d)
    if config.representation_size:
        shapes |= {"pre_logits/kernel": (d, width), "pre_logits/bias": (width,)}
    if config.classes:
        shapes |= {"head/kernel": (width, config.classes), "head/bias": (config.classes,)}
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(scale=0.2, size=shape).astype("float32") for name, shape in shapes.items()
    }


def in_new_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The names that the official code writes today: submodules counted for each class."""
    renamed = {
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "LayerNorm_2": "LayerNorm_1",
        "MlpBlock_3": "MlpBlock_0",
    }
    return {
        "/".join(renamed.get(part, part) for part in name.split("/")): tensor
        for name, tensor in tensors.items()
    }


def save(folder: Path, tensors: dict[str, np.ndarray], name: str = "official.npz") -> Path:
    np.savez(folder / name, **tensors)
    return folder / name


def save_old_h5(model: keras.Model, path: Path) -> None:
    """Saves weights as files of old hold them: without the configuration of the model."""
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        del file["layers/model_metadata"]
