"""Model copies in which all operators can be quantized to integers by TFLite."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import layers
from keras_vit.layers.layer_norm import is_plain
from keras_vit.models import cloning


class _MeasuredLayerNorm(layers.LayerNorm):
    """Layer normalization adapted to quantization with a single range for all tokens.

    A few tokens in the last blocks of a ViT have features hundreds of times larger than the others
    (https://arxiv.org/abs/2309.16588). Their squares would set a quantization step that rounds the
    squares of all other tokens to zero. So tokens are first divided by their mean absolute value,
    which differs far less, and squares are summed in a matrix product.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        size = ops.mean(ops.abs(centered), axis=-1, keepdims=True)
        scale = ops.rsqrt(size * size + self.epsilon)
        scaled = centered * scale
        rows, columns = ops.expand_dims(scaled, -2), ops.expand_dims(scaled, -1)
        # (B, T, 1, D) times (B, T, D, 1) is (B, T, 1, 1).
        variance = ops.squeeze(ops.matmul(rows, columns), -1) / scaled.shape[-1]  # (B, T, 1)
        epsilon = self.epsilon * (scale * scale)
        return scaled * ops.rsqrt(variance + epsilon) * self.gamma + self.beta


def _with_measured_norm(kind: type) -> type:
    """Returns a subclass of a layer class that uses `_MeasuredLayerNorm`."""
    return type(kind.__name__, (kind,), {"norm_class": _MeasuredLayerNorm})


_REPLACEMENTS: dict[type, type] = {keras.layers.LayerNormalization: layers.LayerNorm}
_MEASURED_REPLACEMENTS = {
    keras.layers.LayerNormalization: _MeasuredLayerNorm,
    layers.LayerNorm: _MeasuredLayerNorm,
    layers.TransformerBlock: _with_measured_norm(layers.TransformerBlock),
    layers.AttentionPooling: _with_measured_norm(layers.AttentionPooling),
}


def quantizable(model: keras.Model, measured: bool = False) -> keras.Model:
    """Copies a model, replacing operators that TFLite supports only in floating point."""
    replacements = _MEASURED_REPLACEMENTS if measured else _REPLACEMENTS

    def changed(layer: Any) -> Any:
        kind = replacements.get(type(layer))
        is_norm = isinstance(layer, keras.layers.LayerNormalization)
        is_replaceable = kind and (not is_norm or is_plain(layer))
        return cloning.clone_layer(layer, kind) if is_replaceable else None

    return cloning.clone(model, changed)
