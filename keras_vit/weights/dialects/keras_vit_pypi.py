"""Weight names and layouts of PyPI's `keras-vit`, another package with the same import name."""

from __future__ import annotations

import re

import numpy as np

from keras_vit.weights.dialects import keras_names
from keras_vit.weights.dialects.dialect import Dialect, Named, exact_gelu
from keras_vit.weights.dialects.rows import QKV, group

_CLASS_TOKEN = "add_cls_token/class_token_weight"
_ATTENTION = "multi_head_attention_layer"
_LAYERS = (
    *("layer_normalization_0", tuple(f"{_ATTENTION}/{x}" for x in QKV)),
    *(f"{_ATTENTION}/combine_out", "layer_normalization_1", "dense_0", "dense_1"),
)
_EMBEDDING = (_CLASS_TOKEN, "position_embedding/position_embedding", "patch_embedding/conv2d")

_BLOCK = r"transformer_block_(\d+)"
_SAME = r"transformer_block_\1"
_PATTERNS = {
    r"patch_embedding/conv2d(?:_\d+)?/(\w+)": r"patch_embedding/conv2d/\1",
    r"(add_cls_token|position_embedding|layer_norm|pre_logits|mlp_head)/(\w+)": r"\1/\2",
    rf"{_BLOCK}/{_ATTENTION}/(\w+)/(\w+)": rf"{_SAME}/{_ATTENTION}/\2/\3",
    rf"{_BLOCK}/(?:mlp_block_layer/)?(dense|layer_normalization)(_\d+)?/(\w+)": rf"{_SAME}/\2\3/\4",
}
# Keras numbers these layers over all blocks and models of a session.
_COUNTED = re.compile(r"(transformer_block_\d+/(?:dense|layer_normalization))(?:_(\d+))?/(\w+)")


def _normalize(tensors: dict[str, np.ndarray]) -> Named:
    """Numbers the layers of each block from 0."""
    named = keras_names.normalize(tensors, _PATTERNS, "patch_embedding/conv2d/kernel", "mlp_head")
    matches = {name: match for name in named if (match := _COUNTED.fullmatch(name))}
    numbers = {(match[1], int(match[2] or 0)) for match in matches.values()}
    normalized = {}
    for name, entry in named.items():
        if match := matches.get(name):
            rank = sum(layer == match[1] and n < int(match[2] or 0) for layer, n in numbers)
            name = f"{match[1]}_{rank}/{match[3]}"
        normalized[name] = entry
    return normalized


# layers.py, vit.py and utils.py of https://pypi.org/project/keras-vit/1.0.1/, which does not
# resize positions.
KERAS_VIT_PYPI = Dialect(
    "keras_vit_pypi",
    "PyPI's keras-vit",
    (
        *group("embedding", _EMBEDDING),
        *group("block", _LAYERS, scope="transformer_block_{block}/"),
        *group("top", ("layer_norm", "pre_logits", "mlp_head")),
    ),
    required_names=("patch_embedding/conv2d/kernel", _CLASS_TOKEN),
    implied_fields=exact_gelu(epsilon=1e-6),
    ignored=keras_names.IGNORED,
    normalize=_normalize,
)
