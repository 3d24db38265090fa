"""Low-rank adaptation (LoRA): trained low-rank updates of the dense layers of the blocks."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.layers import TransformerBlock

FACTORS = ("lora_kernel_a", "lora_kernel_b")


def enable_lora(model: keras.Model, rank: int, patterns: Sequence[str] = ("*",)) -> None:
    """Adds low-rank updates to the dense layers of a model's blocks, and freezes their kernels.

    Args:
        model: A model of this package.
        rank: Rank of the updates.
        patterns: Patterns of the layers' paths, such as `"*/attention/qkv"`.

    Raises:
        ValueError: If a pattern matches no dense layer.

    Examples:
        >>> from keras_vit.zoo import ViTMicro4
        >>> model = ViTMicro4(weights=None, classes=3, input_shape=(8, 8, 3))
        >>> enable_lora(model, rank=2, patterns=["*/attention/*"])
        >>> merged_weights(model)[0].shape == model.weights[0].shape
        True

    Reference: https://arxiv.org/abs/2106.09685
    """
    dense = {path.rpartition("/")[0]: layer for path, layer in _dense_layers(model)}
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(path, pattern) for path in dense):
            raise ValueError(
                "Every pattern of `lora_layers` must match a dense layer of a block. Received: "
                f"{pattern!r}; the first block has {', '.join(list(dense)[:4])}"
            )
    for path, layer in dense.items():
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            layer.enable_lora(rank)


def frozen_kernels(model: keras.Model) -> set[int]:
    """Returns the identities of the kernels that low-rank updates are added to."""
    return {id(layer._kernel) for _, layer in _dense_layers(model) if layer.lora_enabled}


def merged_weights(
    model: keras.layers.Layer, values: Mapping[int, Any] | None = None
) -> list[np.ndarray]:
    """Returns the weights of a model or layer as those of one without LoRA.

    `values` replaces variables by other values, such as averages, by the variables' identities.
    """

    def value(variable: keras.Variable) -> np.ndarray:
        return keras.ops.convert_to_numpy((values or {}).get(id(variable), variable))

    updates, factors = {}, set()
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dense) and layer.lora_enabled:
            pair = (layer.lora_kernel_a, layer.lora_kernel_b)
            first, second = map(value, pair)
            updates[id(layer._kernel)] = first @ second * (layer.lora_alpha / layer.lora_rank)
            factors |= set(map(id, pair))
    base = [weight for weight in model.weights if id(weight) not in factors]
    return [
        (value(w) + updates[id(w)]).astype(w.dtype) if id(w) in updates else value(w) for w in base
    ]


def _dense_layers(model: keras.Model) -> Iterator[tuple[str, Any]]:
    """Yields the dense layers of a model's blocks, with the paths of their kernels."""
    for block in model._flatten_layers():
        if isinstance(block, TransformerBlock):
            for layer in block._flatten_layers():
                if isinstance(layer, keras.layers.Dense):
                    yield layer._kernel.path, layer
