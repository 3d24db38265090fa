"""Weights of a model of ours as KerasHub names and shapes them."""

from __future__ import annotations

import keras
import numpy as np

from tests.weights.foreign_files import Arrays, Layers, Pieces, numbered


def backbone_of(model: keras.Model) -> Layers:
    """keras_hub/src/models/{vit/vit_layers.py,deit/deit_layers.py}, release 0.32.0."""
    pieces = Pieces(model)
    config = pieces.config
    heads = (config.num_heads, config.hidden_size // config.num_heads)
    kind = "deit" if config.distillation_token else "vit"
    tokens = f"{kind}_patching_and_embedding"
    layers: Layers = {
        f"{tokens}/patch_embedding": pieces.dense("patch_encoder/projection")
        | {"kernel": pieces.patch_kernel},
        f"{kind}_encoder/ln": pieces.norm("encoder_norm"),
    }
    if config.distillation_token:
        layers[tokens] = {
            "class_token": pieces["patch_encoder/class_token"],
            "distillation_token": pieces["patch_encoder/distillation_token"],
            "position_embedding": pieces.positions,
        }
    else:
        layers[f"{tokens}/position_embedding"] = {"embeddings": pieces.positions[0]}
        if config.class_token:
            layers[tokens] = {"class_token": pieces["patch_encoder/class_token"]}
    for index in range(config.num_layers):
        ours, theirs = f"block_{index:02d}", f"{kind}_encoder/transformer_block_{index + 1}"
        expand, reduce = (
            ("mlp/dense", "output_layer/output")
            if kind == "deit"
            else ("mlp/dense_1", "mlp/dense_2")
        )
        layers |= {
            f"{theirs}/ln_1": pieces.norm(f"{ours}/norm_1"),
            **{
                f"{theirs}/mha/{name}": _in_heads(arrays, heads)
                for name, arrays in pieces.qkv(ours).items()
            },
            f"{theirs}/mha/attention_output": _out(pieces.dense(f"{ours}/attention/out"), heads),
            f"{theirs}/ln_2": pieces.norm(f"{ours}/norm_2"),
            f"{theirs}/{expand}": pieces.dense(f"{ours}/mlp/expand"),
            f"{theirs}/{reduce}": pieces.dense(f"{ours}/mlp/reduce"),
        }
    return numbered(layers)


def head_of(model: keras.Model) -> Layers:
    """What a task keeps beside its backbone."""
    pieces = Pieces(model)
    names = (("pre_logits", "pre_logits"), ("head", "predictions"))
    return numbered(
        {theirs: pieces.dense(ours) for ours, theirs in names if f"{ours}/kernel" in pieces}
    )


def _in_heads(arrays: Arrays, heads: tuple[int, int]) -> Arrays:
    return {
        "kernel": np.reshape(arrays["kernel"], (-1, *heads)),  # (D, K, d)
        "bias": np.reshape(arrays["bias"], heads),  # (K, d)
    }


def _out(arrays: Arrays, heads: tuple[int, int]) -> Arrays:
    width = arrays["kernel"].shape[-1]
    return {"kernel": np.reshape(arrays["kernel"], (*heads, width)), "bias": arrays["bias"]}
