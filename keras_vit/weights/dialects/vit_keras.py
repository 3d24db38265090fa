"""Weight names and layouts of vit-keras, versions 0.1 (Keras 2) and 0.2 (Keras 3)."""

from __future__ import annotations

import numpy as np

from keras_vit.weights.dialects import keras_names
from keras_vit.weights.dialects.dialect import Dialect, Named, exact_gelu
from keras_vit.weights.dialects.rows import QKV, group

_ATTENTION = "MultiHeadDotProductAttention_1"

# Version 0.1 has slashes in the names of its layers, 0.2 underscores.
_OLD_OR_NEW = r"Transformer[/_]encoderblock_(\d+)"
_OLD = r"Transformer/encoderblock_\1"
_PATTERNS = {
    rf"{_OLD_OR_NEW}/{_ATTENTION}/(\w+)/(\w+)": rf"{_OLD}/{_ATTENTION}/\2/\3",
    rf"{_OLD_OR_NEW}[/_](LayerNorm_[02]|Dense_[01])/(\w+)": rf"{_OLD}/\2/\3",
    r"Transformer[/_](posembed_input|encoder_norm)/(\w+)": r"Transformer/\1/\2",
    r"(embedding|class_token|pre_logits|head)/(\w+)": r"\1/\2",
}
# Variables of layers that are not dense, which Keras 3 numbers.
_NUMBERED = {
    "class_token": ("cls",),
    "posembed_input": ("pos_embedding",),
    **dict.fromkeys(("LayerNorm_0", "LayerNorm_2", "encoder_norm"), ("gamma", "beta")),
}

_EMBEDDING = ("class_token/cls", "Transformer/posembed_input/pos_embedding", "embedding")
_PROJECTIONS = (tuple(f"{_ATTENTION}/{x}" for x in QKV), f"{_ATTENTION}/out")
_LAYERS = ("LayerNorm_0", *_PROJECTIONS, "LayerNorm_2", "Dense_0", "Dense_1")


def _normalize(tensors: dict[str, np.ndarray]) -> Named:
    named = keras_names.normalize(tensors, _PATTERNS, "embedding/kernel", "head")
    return {_with_variable_name(name): entry for name, entry in named.items()}


def _with_variable_name(name: str) -> str:
    layer, _, key = name.rpartition("/")
    variables = _NUMBERED.get(layer.rpartition("/")[2], ("kernel", "bias"))
    is_index = key.isdecimal() and int(key) < len(variables)
    return f"{layer}/{variables[int(key)]}" if is_index else name


# layers.py, vit.py and utils.py (`apply_embedding_weights`) of
# https://github.com/faustomorales/vit-keras, releases 0.1.0, 0.1.2 and 0.2.0. Its GELU is exact,
# also with the official weights, which were trained with the tanh GELU.
VIT_KERAS = Dialect(
    "vit_keras",
    "vit-keras",
    (
        *group("embedding", _EMBEDDING),
        *group("block", _LAYERS, scope="Transformer/encoderblock_{block}/"),
        *group("top", ("Transformer/encoder_norm", "pre_logits", "head")),
    ),
    required_names=("embedding/kernel", "Transformer/encoder_norm/gamma"),
    implied_fields=exact_gelu(epsilon=1e-6, position_interpolation="bilinear_aligned"),
    ignored=keras_names.IGNORED,
    normalize=_normalize,
)
