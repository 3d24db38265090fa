"""Outputs of other libraries' code, with weights and images made from a recipe."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import JIT, numpy, weights_of

Case = dict[str, Any]


def names(source: str) -> list[str]:
    """The names of all cases of a source, at collection; none without the reference folder."""
    folder = os.environ.get("KERAS_VIT_TEST_DATA")
    found = sorted(Path(folder, "reference", source).glob("*.json")) if folder else []
    return [path.stem for path in found]


def read(source: str, name: str) -> Case:
    """The description of a case, at collection."""
    path = Path(os.environ["KERAS_VIT_TEST_DATA"], "reference", source, f"{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def parameters(
    chosen: list[str], slow: set[str], otherwise: str, on_jax: set[str] | None = None
) -> list[Any]:
    """Names as test parameters; without the folder one that the fixture skips, with its reason.

    On JAX, which compiles every operator anew for every model, those not in `on_jax` are slow.
    """
    if on_jax is not None and keras.backend.backend() == "jax":
        slow = slow | (set(chosen) - on_jax)
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name in slow else [])
        for name in chosen or [otherwise]
    ]


def trace(model: keras.Model, images: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors of a forward pass, under the names of the official cases."""
    encoder = model.get_layer("patch_encoder")
    outputs = {
        "embedding": encoder.projection(encoder.input),
        "posembed": encoder.output,
        "encoder_norm": model.get_layer("encoder_norm").output,
        "output": model.output,
    }
    for layer in model.layers:
        if layer.name.startswith("block_"):
            outputs[layer.name.replace("_", "")] = layer.output
        if layer.name in ("pre_norm", "head", "distillation_head", "pooling", "pre_logits"):
            outputs[layer.name] = layer.output
        if layer.name in ("head", "distillation_head"):
            outputs[f"{layer.name}_input"] = layer.input
    traced = keras.Model(model.inputs[0], outputs)
    # TensorFlow runs one eager pass sooner than it traces a graph. JAX compiles either way, and
    # one program for the whole model sooner than one for each operation and shape.
    found = traced.predict_on_batch(images) if JIT else traced(images)
    return {name: numpy(value) for name, value in found.items()}


def attention(model: keras.Model, found: dict[str, np.ndarray], index: int) -> np.ndarray:
    """The attention weights of a block, (B, K, T, T)."""
    block = model.get_layer(f"block_{index:02d}")
    before = f"block{index - 1:02d}" if index else "pre_norm" if "pre_norm" in found else "posembed"
    return numpy(block.attention(block.norm_1(found[before]), return_attention_scores=True)[1])


def stored_part(found: dict[str, np.ndarray], name: str) -> np.ndarray:
    """What the reference stores under this name: of the real sizes, only parts."""
    base, _, part = name.rpartition("_")
    if part == "first5":
        return found[base][:, :5]
    if part == "corner":
        return found[base][:, :2, :2]
    if part == "mean" and base in found:  # over tokens, or rows and columns
        return found[base].mean(axis=tuple(range(1, found[base].ndim - 1)))
    if part == "row0":
        return found[base][:, 0]
    return found[name]


def stored_table(model: keras.Model) -> np.ndarray:
    """The position embedding as other libraries store it: (1, [p +] N, D)."""
    weights = weights_of(model)
    table = weights["patch_encoder/position"]
    table = table.reshape(1, -1, table.shape[-1])
    prefix = weights.get("patch_encoder/prefix_position")
    return table if prefix is None else np.concatenate([prefix, table], axis=1)
