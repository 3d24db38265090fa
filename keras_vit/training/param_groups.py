"""Parameter groups for freezing, weight decay and layer-wise learning rates."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import keras

from keras_vit.models import ViTConfig
from keras_vit.models.cloning import layers_of
from keras_vit.models.lora import FACTORS, frozen_kernels

_BLOCK = re.compile(r"^block_(\d+)$")
# Layers before the first block.
_EMBEDDING = ("stem", "patch_encoder", "pre_norm")
# Never trained: statistics of Keras' normalization layers, in networks of `keras.applications`, and
# the unused vector of a `PatchEncoder` for masked patches.
_FIXED = ("moving_mean", "moving_variance", "mean", "variance", "count", "mask_token")


def set_trainable(model: keras.Model, patterns: Sequence[str]) -> None:
    """Makes the parameters whose paths match a pattern trainable, and freezes all others.

    Low-rank updates are always trained, and the kernels that they are added to are frozen.
    """
    weights = model.weights
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(v.path, pattern) for v in weights):
            names = sorted({v.path.partition("/")[0] for v in weights})
            raise ValueError(
                "Every pattern of `trainable` must match a parameter. "
                f"Received: {pattern!r}; the layers with parameters are {', '.join(names)}"
            )

    frozen = frozen_kernels(model)

    def matches(variable: keras.Variable) -> bool:
        if variable.name in FACTORS or id(variable) in frozen:
            return variable.name in FACTORS
        return any(fnmatch.fnmatchcase(variable.path, pattern) for pattern in patterns)

    for layer in layers_of(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            # A frozen layer uses its statistics without updating them.
            layer.trainable = any(map(matches, layer.weights))
    for variable in weights:
        if variable.name not in _FIXED:
            variable.trainable = matches(variable)


def decays(variable: keras.Variable, applied_to: str) -> bool:
    """Returns whether weight decay is applied to a parameter."""
    return applied_to == "all" or variable.name == "kernel"


def layer_rates(
    variables: Sequence[keras.Variable], config: ViTConfig | None, decay: float
) -> list[float]:
    """Returns the learning-rate multiplier of each parameter for layer-wise decay.

    The depth of stem, patches, tokens and positions is 0, the depth of block i (counted from 1) is
    i. The final norm belongs to the last block; the classifier and a norm after the pooling have
    the next depth. The factor of the deepest parameters is 1, and each depth before has `decay`
    times the factor of the next depth.

    Reference: `param_groups_layer_decay` of https://github.com/huggingface/pytorch-image-models,
    after appendix A.2 of https://arxiv.org/abs/2111.06377
    """
    if config is None:
        return [1.0] * len(variables)
    depths = [_depth(v, config) for v in variables]
    deepest = max(depths, default=0)
    return [decay ** (deepest - depth) for depth in depths]


def _depth(variable: keras.Variable, config: ViTConfig) -> int:
    layer = variable.path.partition("/")[0]
    block = _BLOCK.match(layer)
    if block:
        return int(block[1]) + 1
    if layer in _EMBEDDING:
        return 0
    if layer == "encoder_norm" and not config.norm_after_pooling:
        return config.num_layers
    return config.num_layers + 1
